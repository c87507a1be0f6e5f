<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en" sourcelanguage="en">
<context>
    <name>AnswerDialog</name>
    <message numerus="yes">
        <source>%Ln answer(s) written. Prompts: %1.</source>
        <translation>
            <numerusform>%Ln answer written. Prompts: %1.</numerusform>
            <numerusform>%Ln answers written. Prompts: %1.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln left out.</source>
        <translation>
            <numerusform>%Ln left out.</numerusform>
            <numerusform>%Ln left out.</numerusform>
        </translation>
    </message>
</context>
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
    <message numerus="yes">
        <source>%n operation(s) end with the window</source>
        <translation>
            <numerusform>%n operation ends with the window</numerusform>
            <numerusform>%n operations end with the window</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>and %n more</source>
        <translation>
            <numerusform>and %n more</numerusform>
            <numerusform>and %n more</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>DataPreviewDialog</name>
    <message numerus="yes">
        <source>%Ln example(s)</source>
        <translation>
            <numerusform>%Ln example</numerusform>
            <numerusform>%Ln examples</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>the first %Ln example(s)</source>
        <translation>
            <numerusform>the first example</numerusform>
            <numerusform>the first %Ln examples</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>longest %Ln token(s)</source>
        <translation>
            <numerusform>longest %Ln token</numerusform>
            <numerusform>longest %Ln tokens</numerusform>
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
    <message numerus="yes">
        <source>%n trained model(s)</source>
        <translation>
            <numerusform>%n trained model</numerusform>
            <numerusform>%n trained models</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>FindBar</name>
    <message numerus="yes">
        <source>%Ln match(es)</source>
        <translation>
            <numerusform>%Ln match</numerusform>
            <numerusform>%Ln matches</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>Grid</name>
    <message numerus="yes">
        <source>%Ln row(s)</source>
        <translation>
            <numerusform>%Ln row</numerusform>
            <numerusform>%Ln rows</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s) read so far</source>
        <translation>
            <numerusform>%Ln row read so far</numerusform>
            <numerusform>%Ln rows read so far</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln row(s) up to the problem</source>
        <translation>
            <numerusform>%Ln row up to the problem</numerusform>
            <numerusform>%Ln rows up to the problem</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln kept</source>
        <translation>
            <numerusform>%Ln kept</numerusform>
            <numerusform>%Ln kept</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln edited</source>
        <translation>
            <numerusform>%Ln edited</numerusform>
            <numerusform>%Ln edited</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln deleted</source>
        <translation>
            <numerusform>%Ln deleted</numerusform>
            <numerusform>%Ln deleted</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>LearnsPane</name>
    <message numerus="yes">
        <source>%Ln row(s)</source>
        <translation>
            <numerusform>%Ln row</numerusform>
            <numerusform>%Ln rows</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>The first %Ln row(s)</source>
        <translation>
            <numerusform>The first %Ln row</numerusform>
            <numerusform>The first %Ln rows</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln token(s)</source>
        <translation>
            <numerusform>%Ln token</numerusform>
            <numerusform>%Ln tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>longest %Ln token(s)</source>
        <translation>
            <numerusform>longest %Ln token</numerusform>
            <numerusform>longest %Ln tokens</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%1  ·  %Ln token(s), %2 learned</source>
        <translation>
            <numerusform>%1  ·  %Ln token, %2 learned</numerusform>
            <numerusform>%1  ·  %Ln tokens, %2 learned</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>LibraryCard</name>
    <message numerus="yes">
        <source>used by %n run(s)</source>
        <translation>
            <numerusform>used by %n run</numerusform>
            <numerusform>used by %n runs</numerusform>
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
    <name>OnComputer</name>
    <message numerus="yes">
        <source>%Ln model(s) take up %1 on this computer.</source>
        <translation>
            <numerusform>%Ln model takes up %1 on this computer.</numerusform>
            <numerusform>%Ln models take up %1 on this computer.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%1 and %n more</source>
        <translation>
            <numerusform>%1 and %n more</numerusform>
            <numerusform>%1 and %n more</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%n run(s) use it and can&apos;t be resumed, asked or exported without it:</source>
        <translation>
            <numerusform>%n run uses it and can&apos;t be resumed, asked or exported without it:</numerusform>
            <numerusform>%n runs use it and can&apos;t be resumed, asked or exported without it:</numerusform>
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
    <name>ProblemsPane</name>
    <message numerus="yes">
        <source>%Ln row(s) checked</source>
        <translation>
            <numerusform>%Ln row checked</numerusform>
            <numerusform>%Ln rows checked</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln problem(s)</source>
        <translation>
            <numerusform>%Ln problem</numerusform>
            <numerusform>%Ln problems</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>QuestionDialog</name>
    <message numerus="yes">
        <source>%Ln question(s) so far, from %1 of %2 passages</source>
        <translation>
            <numerusform>%Ln question so far, from %1 of %2 passages</numerusform>
            <numerusform>%Ln questions so far, from %1 of %2 passages</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln question(s)</source>
        <translation>
            <numerusform>%Ln question</numerusform>
            <numerusform>%Ln questions</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln question(s) written. Passages: %1.</source>
        <translation>
            <numerusform>%Ln question written. Passages: %1.</numerusform>
            <numerusform>%Ln questions written. Passages: %1.</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of them gave none.</source>
        <translation>
            <numerusform>%Ln of them gave none.</numerusform>
            <numerusform>%Ln of them gave none.</numerusform>
        </translation>
    </message>
</context>
<context>
    <name>RowPane</name>
    <message numerus="yes">
        <source>Delete %Ln row(s)</source>
        <translation>
            <numerusform>Delete %Ln row</numerusform>
            <numerusform>Delete %Ln rows</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>Restore %Ln row(s)</source>
        <translation>
            <numerusform>Restore %Ln row</numerusform>
            <numerusform>Restore %Ln rows</numerusform>
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
    <name>Saving</name>
    <message numerus="yes">
        <source>%Ln row(s)</source>
        <translation>
            <numerusform>%Ln row</numerusform>
            <numerusform>%Ln rows</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of them edited</source>
        <translation>
            <numerusform>%Ln of them edited</numerusform>
            <numerusform>%Ln of them edited</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln deleted by hand</source>
        <translation>
            <numerusform>%Ln deleted by hand</numerusform>
            <numerusform>%Ln deleted by hand</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln left out</source>
        <translation>
            <numerusform>%Ln left out</numerusform>
            <numerusform>%Ln left out</numerusform>
        </translation>
    </message>
    <message numerus="yes">
        <source>%Ln of them repaired</source>
        <translation>
            <numerusform>%Ln of them repaired</numerusform>
            <numerusform>%Ln of them repaired</numerusform>
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
        <source>%n deleted item(s)</source>
        <translation>
            <numerusform>%n deleted item</numerusform>
            <numerusform>%n deleted items</numerusform>
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
        <source>Delete %n item(s) for good?</source>
        <translation>
            <numerusform>Delete %n item for good?</numerusform>
            <numerusform>Delete %n items for good?</numerusform>
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
<context>
    <name>WordsCard</name>
    <message numerus="yes">
        <source>Add the first %Ln word(s)</source>
        <translation>
            <numerusform>Add the first word</numerusform>
            <numerusform>Add the first %Ln words</numerusform>
        </translation>
    </message>
</context>
</TS>
