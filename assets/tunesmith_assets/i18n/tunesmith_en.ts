<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en" sourcelanguage="en">
<context>
    <name>AnswerView</name>
    <message numerus="yes">
        <source>%n token(s)</source>
        <translation>
            <numerusform>%n token</numerusform>
            <numerusform>%n tokens</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>ChecksCard</name>
    <message numerus="yes">
        <source>All %n check(s) passed</source>
        <translation>
            <numerusform>%n check passed</numerusform>
            <numerusform>All %n checks passed</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>CloseWindowDialog</name>
    <message numerus="yes">
        <source>%n run(s) are still running</source>
        <translation>
            <numerusform>%n run is still running</numerusform>
            <numerusform>%n runs are still running</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>DataPicker</name>
    <message numerus="yes">
        <source>%n skipped</source>
        <translation>
            <numerusform>%n skipped</numerusform>
            <numerusform>%n skipped</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>at least %n bad rows, skipped</source>
        <translation>
            <numerusform>at least %n bad row, skipped</numerusform>
            <numerusform>at least %n bad rows, skipped</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>DeleteRunDialog</name>
    <message numerus="yes">
        <source>Delete %n run(s)?</source>
        <translation>
            <numerusform>Delete %n run?</numerusform>
            <numerusform>Delete %n runs?</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>and %n more</source>
        <translation>
            <numerusform>and %n more</numerusform>
            <numerusform>and %n more</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n run(s) are links. Only links are deleted, not the runs they point to.</source>
        <translation>
            <numerusform>%n run is a link. Only the link is deleted, not the run it points to.</numerusform>
            <numerusform>%n runs are links. Only the links are deleted, not the runs they point to.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n checkpoint(s)</source>
        <translation>
            <numerusform>%n checkpoint</numerusform>
            <numerusform>%n checkpoints</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n trained adapter(s)</source>
        <translation>
            <numerusform>%n trained adapter</numerusform>
            <numerusform>%n trained adapters</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>MainWindow</name>
    <message numerus="yes">
        <source>%n active run(s)</source>
        <translation>
            <numerusform>%n active run</numerusform>
            <numerusform>%n active runs</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>PresetBar</name>
    <message numerus="yes">
        <source>%n changed</source>
        <translation>
            <numerusform>%n changed</numerusform>
            <numerusform>%n changed</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>RunsPage</name>
    <message numerus="yes">
        <source>%n run(s)</source>
        <translation>
            <numerusform>%n run</numerusform>
            <numerusform>%n runs</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n selected</source>
        <translation>
            <numerusform>%n selected</numerusform>
            <numerusform>%n selected</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>SettingsList</name>
    <message numerus="yes">
        <source>%n changed</source>
        <translation>
            <numerusform>%n changed</numerusform>
            <numerusform>%n changed</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>ShellBanners</name>
    <message numerus="yes">
        <source>%n run(s) were interrupted</source>
        <translation>
            <numerusform>%n run was interrupted</numerusform>
            <numerusform>%n runs were interrupted</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>TrashDialog</name>
    <message numerus="yes">
        <source>%n deleted run(s)</source>
        <translation>
            <numerusform>%n deleted run</numerusform>
            <numerusform>%n deleted runs</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>and %n more</source>
        <translation>
            <numerusform>and %n more</numerusform>
            <numerusform>and %n more</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>Delete %n run(s) for good?</source>
        <translation>
            <numerusform>Delete %n run for good?</numerusform>
            <numerusform>Delete %n runs for good?</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>VotePage</name>
    <message numerus="yes">
        <source>%n preference pair(s) saved</source>
        <translation>
            <numerusform>%n preference pair saved</numerusform>
            <numerusform>%n preference pairs saved</numerusform>
        </translation>
    </message>
</context>
</TS>
