"""Which Python runs what, and with which variables."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tunesmith_core import environments
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.settings import SettingsFile
from tunesmith_setup.packages import inventory

# The list of the design, spelled as Windows' own tools spell it.
FOREIGN = """CC CXX CUDA_PATH CUDA_HOME TRITON_PTXAS_PATH TRITON_PTXAS.EXE_PATH TRITON_LIBCUDA_PATH VCINSTALLDIR
VCToolsVersion WindowsSdkDir WindowsSDKVersion PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUTF8 BNB_CUDA_VERSION
CONDA_PREFIX CONDA_DEFAULT_ENV VIRTUAL_ENV LD_LIBRARY_PATH LD_PRELOAD CUDA_VISIBLE_DEVICES CUDA_LAUNCH_BLOCKING
cuda_path Cuda_Home""".split()
SECRETS = """HF_TOKEN HUGGING_FACE_HUB_TOKEN GITHUB_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY AZURE_CREDENTIALS
OPENAI_APIKEY PGPASSWORD DB_PASSWORD UV_INDEX_OURS_PASSWORD DATABASE_URL GITHUB_PAT SSH_AUTH_SOCK KUBECONFIG
PGPASSFILE SENTRY_DSN STRIPE_KEY WSLENV TOKENIZERS_X KEYBOARD""".split()
PROXIES = "http_proxy HTTPS_PROXY all_proxy".split()
KEPT = {
    "LANG": "C.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "NO_PROXY": "localhost",
    "HF_ENDPOINT": "https://m",
    "SSL_CERT_FILE": "/company.pem",
    "ProgramFiles(x86)": "C:\\Programs",
    "LOCALAPPDATA": "C:\\Local",
    "XDG_RUNTIME_DIR": "/run/user/1000",
}
NAMED_BY_US = """TMP TEMP TMPDIR TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_COMPILE_THREADS HF_HOME
MPLCONFIGDIR HF_HUB_DISABLE_SYMLINKS_WARNING HF_HUB_DISABLE_TELEMETRY TOKENIZERS_PARALLELISM RAYON_NUM_THREADS
TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE PYTHONDONTWRITEBYTECODE TUNESMITH_HOME""".split()
LISTED = "distutils-precedence.pth"


def make_environment(folder: Path) -> Path:
    python = environments.environment_python(folder)
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_hub_and_offline_switch_of_the_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://of-the-shell.example")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    found = environments.engine_environment(downloads=True)
    assert (found["HF_ENDPOINT"], "HF_HUB_OFFLINE" in found) == ("https://of-the-shell.example", False)
    file = SettingsFile()
    file.change(hub_endpoint="https://mirror.example", offline=True)
    file.save()
    found = environments.engine_environment(downloads=True)
    assert (found["HF_ENDPOINT"], found["HF_HUB_OFFLINE"]) == ("https://mirror.example", "1")
    file.change(hub="modelscope")
    file.save()
    found = environments.engine_environment(downloads=True)
    assert found[environments.MODELSCOPE_VARIABLE] == "https://mirror.example"
    assert found["HF_ENDPOINT"] == "https://of-the-shell.example"
    file.change(hub_endpoint="")
    file.save()
    assert environments.engine_environment()[environments.MODELSCOPE_VARIABLE] == environments.MODELSCOPE


def test_a_pointer_names_a_folder_or_a_path(home: Path, tmp_path: Path) -> None:
    inside, outside = make_environment(home / "envs" / "train-1"), make_environment(tmp_path / "elsewhere")
    (home / "envs" / "train.current").write_text("train-1\n")
    (home / "envs" / "launcher.current").write_text(str(tmp_path / "elsewhere"))
    assert environments.training_python() == inside
    assert environments.launcher_python() == outside
    assert environments.engine_command("run")[0] == str(inside)
    assert environments.engine_command("run")[-2:] == ["tunesmith_engine", "run"]


@pytest.mark.parametrize("content", [None, "", "gone"])
def test_a_pointer_to_nothing_says_what_to_do(home: Path, content: str | None) -> None:
    (home / "envs").mkdir()
    if content is not None:
        (home / "envs" / "train.current").write_text(content)
    with pytest.raises(EnvironmentProblem) as caught:
        environments.training_python()
    assert caught.value.code == "environment-missing"


def test_the_packages_of_the_harness_must_fit_the_python_that_uses_them(home: Path) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    right, wrong = f"harness-linux-py{version.replace('.', '')}-1", "harness-linux-py27-1"
    for name in (right, wrong):
        make_environment(home / "envs" / name)
    packages = home / "envs" / right / ("Lib" if os.name == "nt" else f"lib/python{version}") / "site-packages"
    pointer = home / "envs" / environments.HARNESS_POINTER
    for name in ("gone", wrong, right):
        pointer.write_text(name)
        with pytest.raises(EnvironmentProblem) as caught:
            environments.harness_packages()
        assert caught.value.code == "environment-missing"
    assert "tunesmith harness" in caught.value.hint
    packages.mkdir(parents=True)
    assert environments.harness_packages() == packages


@pytest.fixture
def shell(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's shell full of what must not reach an engine; returns the data root."""
    for name in (*FOREIGN, *SECRETS, *PROXIES):
        monkeypatch.setenv(name, "foreign")
    for name, value in KEPT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(environments, "WSL_LIBRARIES", home / "no-wsl")
    return home


def test_the_engine_sees_no_foreign_compilers_libraries_secrets_or_proxies(shell: Path) -> None:
    seen = environments.engine_environment()
    assert [name for name, value in seen.items() if value == "foreign"] == []
    seen = {name.upper(): value for name, value in seen.items()}
    assert {name: seen[name.upper()] for name in KEPT} == KEPT
    assert "LD_LIBRARY_PATH" not in seen


def test_a_variable_reaches_the_engine_only_when_it_is_named(shell: Path) -> None:
    seen = {name.upper() for name in environments.engine_environment(downloads=True)}
    named = environments.ENGINE_VARIABLES | environments.PROXY_VARIABLES | set(NAMED_BY_US)
    assert [name for name in seen - named if not name.startswith(environments.ENGINE_PREFIXES)] == []


def test_temporary_files_and_caches_lie_where_we_want_them(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMP", "/somewhere")
    monkeypatch.setenv("HF_HOME", "/somewhere")
    seen = environments.engine_environment()
    assert {seen[name] for name in ("TMP", "TEMP", "TMPDIR")} == {str(shell / "tmp")}
    assert (shell / "tmp").is_dir()
    caches = {"TRITON_CACHE_DIR": "tc", "TORCHINDUCTOR_CACHE_DIR": "ic", "HF_HOME": "hf"}
    assert {name: seen[name] for name in caches} == {name: str(shell / "cache" / at) for name, at in caches.items()}
    wanted = {
        "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
        "TOKENIZERS_PARALLELISM": "true",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "TUNESMITH_HOME": str(shell),
    }
    assert wanted.items() <= seen.items()


@pytest.mark.parametrize(("num_cores", "threads"), [(None, "1"), (2, "2"), (64, "8")])
def test_a_tokenizer_takes_the_cores_but_not_all_of_many(
    shell: Path, monkeypatch: pytest.MonkeyPatch, num_cores: int | None, threads: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: num_cores)
    assert environments.engine_environment()["RAYON_NUM_THREADS"] == threads


def test_a_chosen_proxy_reaches_an_engine_that_downloads_and_no_other(shell: Path) -> None:
    file = SettingsFile()
    file.change(proxy="http://proxy.example:8080")
    file.save()
    assert "http://proxy.example:8080" not in environments.engine_environment().values()
    assert "http://proxy.example:8080" in environments.engine_environment(downloads=True).values()
    seen = environments.engine_environment(downloads=True)
    names = [f"{scheme}_proxy" for scheme in ("http", "https", "all")]
    # Windows knows a variable by its name in any letters.
    spelled = [*map(str.upper, names)] + ([] if os.name == "nt" else names)
    assert {seen[name] for name in spelled} == {"http://proxy.example:8080"}


def test_a_model_of_the_hub_comes_through_the_persons_own_proxy(shell: Path) -> None:
    seen = environments.engine_environment(downloads=True)
    assert {name: seen.get(name.upper(), seen.get(name)) for name in PROXIES} == dict.fromkeys(PROXIES, "foreign")
    assert not set(SECRETS) & seen.keys()


def test_training_needs_no_proxy(shell: Path) -> None:
    assert not set(PROXIES) & environments.engine_environment().keys()


def test_inside_wsl_the_drivers_libraries_are_named(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell / "wsl-lib").mkdir()
    monkeypatch.setattr(environments, "WSL_LIBRARIES", shell / "wsl-lib")
    seen = environments.engine_environment()
    assert seen["LD_LIBRARY_PATH"] == seen["TRITON_LIBCUDA_PATH"] == str(shell / "wsl-lib")


@pytest.fixture
def built(home: Path) -> Path:
    """The package folder of a training environment as Tunesmith builds it, with one known startup file."""
    folder = home / "envs" / "train-1"
    make_environment(folder)
    (home / "envs" / "train.current").write_text("train-1")
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / LISTED).write_text("import os")
    (site / "torch.py").touch()
    inventory.seal(folder, {"version": 1})
    return site


def test_a_built_environment_is_started(built: Path) -> None:
    assert environments.training_python() == environments.environment_python(built.parents[2])


@pytest.mark.parametrize("name", ["litellm_init.pth", "sitecustomize.py", "usercustomize", "ä.pth", LISTED, "[.pth"])
def test_a_planted_startup_file_is_named_before_python_starts(built: Path, name: str) -> None:
    (built / name).write_text("import os; os.abort()")
    with pytest.raises(EnvironmentProblem, match=re.escape(name)) as caught:
        environments.engine_command("run")
    assert caught.value.code == "environment-damaged"
    assert caught.value.actions == ("repair-environment",)


@pytest.mark.parametrize("text", ["", "{", f'["lib/python3.11/site-packages/{LISTED}",', "\n[3]\n"])
def test_a_damaged_list_vouches_for_nothing(built: Path, text: str) -> None:
    (built.parents[2] / environments.FILE_LIST).write_text(f"x\n{text}")
    assert environments.planted_files(built.parents[2]) == [LISTED]


def test_without_a_list_known_names_serve(built: Path) -> None:
    folder = built.parents[2]
    (folder / environments.FILE_LIST).unlink()
    assert environments.planted_files(folder) == []
    (built / "planted.pth").touch()
    assert environments.planted_files(folder) == ["planted.pth"]
    (folder / environments.MANIFEST).unlink()
    assert environments.planted_files(folder) == [], "a developer's own environment"


def test_no_proxy_means_no_variables() -> None:
    assert environments.proxy_variables("") == {}
    assert set(map(str.upper, environments.proxy_variables("http://p:1"))) == environments.PROXY_VARIABLES
    assert len(environments.proxy_variables("http://p:1")) == (3 if os.name == "nt" else 6)
