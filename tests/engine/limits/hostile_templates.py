# ruff: noqa: E501, RUF005
"""Chat templates that mean harm or are broken, by families; each ends with a code, or writes a text, harmlessly."""

from __future__ import annotations

from itertools import product

CANARY = "/tmp/tunesmith-canary"
ROW = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}"


def _loops() -> list[str]:
    templates = []
    for depth, number, body in product((3, 6), (2000, 99999), ("", "x")):
        begin = "".join(f"{{% for x{level} in range({number}) %}}" for level in range(depth))
        templates.append(begin + body + "{% endfor %}" * depth)
    long = "messages * 9999"
    templates += [
        f"{{% for a in {long} %}}{{% for b in {long} %}}{{% for c in {long} %}}{{% endfor %}}{{% endfor %}}{{% endfor %}}",
        "{% for a in range(99999) %}{% for b in range(99999) if b > a * 2 %}{% endfor %}{% endfor %}" * 9,
        "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | list | sort | length }}{% endfor %}",
        "{% for a in range(99999) %}{{ range(99999) | map('string') | join | length }}{% endfor %}",
        "{% for a in range(99999) %}{% set x = messages | tojson | length %}{% for b in range(999) %}{% endfor %}{% endfor %}",
    ]
    return templates


def _recursion() -> list[str]:
    return [
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}{% call f() %}{{ f() }}{% endcall %}{% endcall %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f(n) %}{% for i in range(99) %}{{ f(n) if n < 9 }}{% endfor %}{% endmacro %}{{ f(0) }}",
        "{% macro f(n) %}{% if n %}{% for i in range(999) %}{{ f(n - 1) }}{% endfor %}{% endif %}{% endmacro %}{{ f(9) }}",
        "(" * 3000 + "x" + ")" * 3000,
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{{ " + "-" * 30000 + "1 }}",
        "{% if true %}" * 3000 + "{% endif %}" * 3000,
        "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
        "{{ [" + "[" * 2000 + "]" * 2000 + "] }}",
    ]


def _memory() -> list[str]:
    templates = [f"{{{{ 'a' * 10 ** {power} }}}}" for power in range(8, 13)]
    templates += [f"{{{{ ('a' * 10 ** {one}) * 10 ** {other} }}}}" for one, other in product((5, 6), (4, 5, 6))]
    templates += [f"{{{{ [0] * 10 ** {power} }}}}" for power in range(8, 12)]
    templates += [f"{{{{ 'a' | center(10 ** {power}) | length }}}}" for power in range(9, 12)]
    templates += [
        f"{{% set n = namespace(s='{seed}') %}}{{% for i in range({times}) %}}{{% set n.s = n.s {grow} %}}{{% endfor %}}{{{{ n.s }}}}"
        for seed, times, grow in (
            ("ab", 60, "~ n.s"),
            ("ab", 60, "+ n.s"),
            ("ab", 60, "| replace('a', 'aa') | replace('b', 'bb')"),
            ("ab", 30, "| replace('', 'xyz')"),
            ("ab", 40, "| list | join(n.s)"),
            ("ab", 40, "| urlencode | forceescape ~ n.s"),
            ("ab", 40, "| tojson | tojson ~ n.s"),
            ("ab", 60, "* 9"),
        )
    ]
    return templates + [
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10 ** 10, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '%.1000000000f' | format(1.0) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{0:{1}}'.format(1, 10 ** 10) }}",
        "{{ 'a'.ljust(10 ** 10) }}",
        "{{ 'a'.zfill(10 ** 10) }}",
        "{{ '\t'.expandtabs(10 ** 10) }}",
        "{{ 'a\nb' | indent(10 ** 9) }}",
        "{{ ('a ' * 10 ** 8) | wordwrap(1) }}",
        "{{ ('ab' * 10 ** 7).replace('a', 'a' * 10 ** 6) }}",
        "{{ ('a' * 10 ** 6) | batch(1, 'b') | list | batch(10 ** 9, 'c' * 10 ** 6) | list }}",
        "{{ [1] | batch(10 ** 9, 0) | list }}",
        "{{ ([1] * 10) | slice(10 ** 9, 0) | list }}",
        "{{ ('a,' * 10 ** 8).split(',') | length }}",
        "{{ lipsum(10 ** 6, True, 10, 10 ** 6) }}",
        "{{ lipsum(n=10 ** 9) }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages * 10 ** 9 }}",
        "{{ (messages * 10 ** 6) | tojson }}",
        "{{ messages | tojson(indent=10 ** 9) }}",
        "{{ ('&' * 10 ** 8) | escape | escape | escape }}",
        "{{ ('a' * 10 ** 6) | join('b' * 10 ** 6) }}",
        "{{ dict(messages[0], **{'a': 'b' * 10 ** 10}) }}",
    ]


def _numbers() -> list[str]:
    return [
        "{{ 10 ** (10 ** 8) }}",
        "{{ 10 ** (10 ** 9) }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ (2 ** 100000) ** 1000 > 1 }}",
        "{{ 10 ** 10 ** 8 }}",
        "{{ (10 ** 5000) }}",
        "{{ (7 ** 3000000) % 5 }}",
        "{{ '9' * 5000 | int }}",
        "{{ ('9' * 10 ** 7) | int }}",
        "{{ ('9' * 10 ** 7) | float }}",
        "{{ 1e308 * 10 }}",
        "{{ 1 / 0 }}",
        "{{ 1 // 0 }}",
        "{{ 1 % 0 }}",
        "{{ (-8) ** 0.5 }}",
    ]


def _escapes() -> list[str]:
    touch = f"touch {CANARY}"
    roots = ("''", "[]", "{}", "messages", "messages[0]", "1", "none", "range", "lipsum", "cycler", "joiner", "namespace", "raise_exception", "strftime_now", "self", "loop", "tools")  # fmt: skip
    templates = [f"{{{{ {root}.__class__.__mro__[1].__subclasses__() }}}}" for root in roots]
    templates += [f"{{{{ {root}.__init__.__globals__['os'].system('{touch}') }}}}" for root in roots]
    templates += [f"{{{{ ({root} | attr('__class__')) | attr('__mro__') }}}}" for root in roots[:8]]
    return templates + [
        f"{{{{ lipsum.__globals__['os'].popen('{touch}').read() }}}}",
        f"{{{{ cycler('a').__init__.__globals__.os.popen('{touch}') }}}}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
        "{{ '{a.__class__}'.format_map({'a': ''}) }}",
        "{% set f = '{0.__class__}'.format %}{{ f('') }}",
        "{{ ['{0.__class__}'] | map('format', '') | list }}",
        "{{ messages | map(attribute='__class__') | list }}",
        "{{ messages | groupby('__class__') | list }}",
        "{{ messages | sort(attribute='__class__.__mro__') | list }}",
        "{{ [''] | map('attr', '__class__') | list }}",
        "{{ '' | attr('__cla' ~ 'ss__') }}",
        "{{ ''['__class__'] }}",
        "{{ ''['\\x5f\\x5fclass\\x5f\\x5f'] }}",
        "{{ self._TemplateReference__context }}",
        "{{ self.__dict__ }}",
        "{{ messages.append('x') }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{{ messages[0].pop('content') }}",
        "{{ messages.__setitem__(0, 'x') }}",
        "{% set messages[0].content = 'x' %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{% from 'os' import system %}{{ system }}",
        "{% extends '/etc/passwd' %}",
        "{{ (messages | map('upper')).gi_frame }}",
        "{{ (messages | map('upper')).gi_frame.f_builtins }}",
        "{% macro f() %}{% endmacro %}{{ f.__call__.__globals__ }}",
        "{{ f.func_globals }}",
        "{{ __builtins__ }}",
        "{{ __import__('os') }}",
        f"{{{{ open('{CANARY}', 'w') }}}}",
        "{{ config }}{{ request }}{{ environ['TUNESMITH_CANARY'] }}",
        "{% set x = namespace() %}{% set x.__class__ = '' %}",
        "{{ namespace(__class__='x').__class__ }}",
        "{{ joiner.__init__.__globals__.os.environ }}",
    ]


def _refusals() -> list[str]:
    return [
        "{{ raise_exception('no') }}",
        "{{ raise_exception('no' * 10 ** 7) }}",
        "{{ raise_exception(messages) }}",
        "{{ raise_exception() }}",
        "{{ messages | nofilter }}",
        "{{ 1 if messages is notest }}",
        "{{ nothing.more }}",
        "{{ messages[99]['content'] }}",
        "{{ messages[0]['content'] + 1 }}",
        "{{ none + 1 }}",
        "{{ messages | first | last | first | first | abs }}",
        "{{ 'x' | round }}",
        "{{ messages | sum }}",
        "{{ 'a' < 1 }}",
        "{{ [1, 'a'] | sort }}",
        "{{ {}['a']['b'] }}",
        "{{ messages() }}",
        "{{ 'a'.encode('ascii').decode('utf-16') }}",
        "{{ '\\ud800' }}",
        "{{ 'a'.encode('nothing') }}",
        "{{ 'a'.index('b') }}",
        "{{ ''.join([1]) }}",
        "{% for",
        "{% for m in messages %}",
        "{% endfor %}",
        "{{ }}",
        "{{ messages",
        "{% unknown %}",
        "{% macro %}",
        "{# never closed",
        "{% raw %}",
        "{% set %}",
        "{% if %}x{% endif %}",
        "{{ 'never closed }}",
        "{% generation %}",
        "{% generation %}x{% endgeneration %}" * 3,
        "{% break %}",
        "{{ 1..2 }}",
    ]


def _texts() -> list[str]:
    return [
        "",
        " ",
        "\n",
        "constant",
        "{{ 1 }}",
        "{{ messages }}",
        "{{ none }}",
        "{{ messages | length }}",
        "{{ '\x00' }}",
        "{{ 'x' * 2000000 }}" + ROW,
        "{{ 'x' * 20000000 }}" + ROW,
        ROW * 20,
        "{{ messages | map(attribute='content') | join('') | reverse }}",
        "{{ messages | map(attribute='content') | random }}",
        "{{ range(9) | random }}" + ROW,
    ]


def _times() -> list[str]:
    wait = "{% for i in range(99999) %}{% if strftime_now('%s') | int > 9 ** 12 %}{% endif %}{% endfor %}"
    return [
        "{{ strftime_now('%Y') }}" + ROW,
        "{{ strftime_now('%f') }}" + ROW,
        "{{ strftime_now('%' * 10 ** 6) }}",
        "{{ strftime_now('%Y' * 10 ** 8) | length }}",
        "{{ strftime_now('\x00') }}",
        "{{ strftime_now(1) }}",
        wait * 20,
    ]


def _scanners() -> list[str]:
    """Filters that look at text by regular expressions, which a template can't choose."""
    return [
        "{{ ('(' * 10 ** 6) | urlize }}",
        "{{ ('http://' * 10 ** 6) | urlize }}",
        "{{ ('a@' * 10 ** 6) | urlize }}",
        "{{ ('<' * 10 ** 6) | striptags }}",
        "{{ ('<!--' * 10 ** 6) | striptags }}",
        "{{ ('a ' * 10 ** 7) | title }}",
        "{{ ('a ' * 10 ** 7) | wordcount }}",
        "{{ ('a-' * 10 ** 7) | title | wordwrap(3) }}",
        "{{ ('&lt;' * 10 ** 6) | safe | striptags }}",
        "{{ ('x' * 10 ** 6) | truncate(5) }}",
    ]


FAMILIES = {
    "loops": _loops(),
    "recursion": _recursion(),
    "memory": _memory(),
    "numbers": _numbers(),
    "escapes": _escapes(),
    "refusals": _refusals(),
    "texts": _texts(),
    "times": _times(),
    "scanners": _scanners(),
}
ALL = [(family, template) for family, templates in FAMILIES.items() for template in templates]
QUICK = [(family, template) for family, templates in FAMILIES.items() for template in (templates[0], templates[-1])]
