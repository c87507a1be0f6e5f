; Tunesmith-Setup.exe: installs for one person, without elevation. Built by `python -m tunesmith_setup.build`, which
; passes the defines and writes files.nsh.
;
; The program is unpacked beside an older one ($INSTDIR\program.new), checked against its payload manifest by its own
; Python, and only then renamed to $INSTDIR\program; data lies elsewhere and is not touched.

Target amd64-unicode
SetCompressor /SOLID lzma
SetDateSave off
CRCCheck force
RequestExecutionLevel user
ManifestDPIAware true
ManifestSupportedOS Win10
ManifestLongPathAware true

!include MUI2.nsh
!include FileFunc.nsh
!include LogicLib.nsh
!include WinVer.nsh

!define PRODUCT "Tunesmith"
!define UNINSTALL_KEY "Software\Microsoft\Windows\CurrentVersion\Uninstall\${PRODUCT}"
!define SETTINGS_KEY "Software\${PRODUCT}\Setup"
!define START "app\tunesmith_core\start.py"
!define ISOLATED "-I -X utf8"
!define EXIT_BAD_INPUT 2
!define EXIT_ENVIRONMENT 3
; Return values of GetDriveType.
!define DRIVE_REMOVABLE 2
!define DRIVE_FIXED 3
!define DRIVE_REMOTE 4

Name "${PRODUCT}"
OutFile "Tunesmith-Setup.exe"
BrandingText "${PRODUCT} ${VERSION}"
InstallDir "$LOCALAPPDATA\Programs\${PRODUCT}"
InstallDirRegKey HKCU "${UNINSTALL_KEY}" "InstallLocation"
ShowInstDetails show
ShowUninstDetails show

VIProductVersion "${VERSION}.0"
VIAddVersionKey "ProductName" "${PRODUCT}"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "${PRODUCT} Setup"
VIAddVersionKey "LegalCopyright" "Apache License 2.0"

Var Staging
Var PythonFolder
Var RemoveData

!define MUI_ICON "${ICON}"
!define MUI_UNICON "${ICON}"
!define MUI_ABORTWARNING
!define MUI_WELCOMEFINISHPAGE_BITMAP "welcome.bmp"
!define MUI_LANGDLL_REGISTRY_ROOT HKCU
!define MUI_LANGDLL_REGISTRY_KEY "${SETTINGS_KEY}"
!define MUI_LANGDLL_REGISTRY_VALUENAME "Language"
!define MUI_FINISHPAGE_RUN
!define MUI_FINISHPAGE_RUN_FUNCTION OpenTunesmith
!define MUI_FINISHPAGE_TEXT "$(TextFinish)"
!define MUI_DIRECTORYPAGE_TEXT_TOP "$(TextFolder)"

!insertmacro MUI_PAGE_WELCOME
!insertmacro MUI_PAGE_LICENSE "${LICENCE}"
!define MUI_PAGE_CUSTOMFUNCTION_LEAVE LeaveFolderPage
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!insertmacro MUI_UNPAGE_CONFIRM
!insertmacro MUI_UNPAGE_INSTFILES

!insertmacro MUI_LANGUAGE "English"
!insertmacro MUI_LANGUAGE "SimpChinese"
!include texts.nsh
!insertmacro MUI_RESERVEFILE_LANGDLL

; Ends the setup with a reason: in a box, or, when silent, on the standard output that the setup was started with.
!macro Refuse PREFIX TEXT CODE
  Push "${TEXT}"
  Call ${PREFIX}Tell
  SetErrorLevel ${CODE}
  Quit
!macroend

!macro TellFunction PREFIX
Function ${PREFIX}Tell
  Exch $0
  DetailPrint "$0"
  ${If} ${Silent}
    Push $1
    System::Call 'kernel32::GetStdHandle(i -11) p .r1'
    FileWrite $1 "$0$\r$\n"
    Pop $1
  ${Else}
    MessageBox MB_OK|MB_ICONSTOP "$0"
  ${EndIf}
  Pop $0
FunctionEnd
!macroend
!insertmacro TellFunction ""
!insertmacro TellFunction "un."

!macro WithoutTrailingSlash TEXT
  StrCpy $R0 ${TEXT} 1 -1
  ${If} $R0 == "\"
    StrCpy ${TEXT} ${TEXT} -1
  ${EndIf}
!macroend

Function .onInit
  SetRegView 64
  ${IfNot} ${AtLeastWin10}
    !insertmacro Refuse "" "$(TextOldWindows)" ${EXIT_ENVIRONMENT}
  ${EndIf}
  System::Call 'kernel32::CreateMutexW(p 0, i 0, w "Local\TunesmithSetup") p .r1 ?e'
  Pop $0
  ${If} $0 = 183 ; ERROR_ALREADY_EXISTS
    !insertmacro Refuse "" "$(TextRunning)" ${EXIT_ENVIRONMENT}
  ${EndIf}
  ${IfNot} ${Silent}
    !insertmacro MUI_LANGDLL_DISPLAY
  ${EndIf}
  !insertmacro WithoutTrailingSlash $INSTDIR
  Call CheckNamedFolder
  Call FindPython
FunctionEnd

; NSIS installs into the default folder when the one that /D= names is no valid path: refused instead.
Function CheckNamedFolder
  System::Call 'kernel32::GetCommandLineW() t .r0'
  StrLen $1 $0
  ${For} $2 0 $1
    StrCpy $3 $0 4 $2
    ${If} $3 == " /D="
      IntOp $2 $2 + 4
      StrCpy $3 $0 "" $2
      !insertmacro WithoutTrailingSlash $3
      ${If} $3 != $INSTDIR
        !insertmacro Refuse "" "$3: $(TextNoFolder)" ${EXIT_BAD_INPUT}
      ${EndIf}
      Return
    ${EndIf}
  ${Next}
FunctionEnd

; Sets $PythonFolder: where the Python lies that runs the program.
Function FindPython
!ifdef BUNDLED_PYTHON
  StrCpy $PythonFolder "$INSTDIR\program\python"
!else
  !macro TryPython VERSION
    ${If} $PythonFolder == ""
      ReadRegStr $PythonFolder HKCU "Software\Python\PythonCore\${VERSION}\InstallPath" ""
    ${EndIf}
    ${If} $PythonFolder == ""
      ReadRegStr $PythonFolder HKLM "Software\Python\PythonCore\${VERSION}\InstallPath" ""
    ${EndIf}
    ${IfNot} ${FileExists} "$PythonFolder\pythonw.exe"
      StrCpy $PythonFolder ""
    ${EndIf}
  !macroend
  !insertmacro TryPython "3.12"
  !insertmacro TryPython "3.13"
  !insertmacro TryPython "3.11"
  ${If} $PythonFolder == ""
    !insertmacro Refuse "" "$(TextNoPython)" ${EXIT_ENVIRONMENT}
  ${EndIf}
!endif
FunctionEnd

; Pushes why $INSTDIR can't serve, or nothing.
Function FolderProblem
  StrCpy $0 $INSTDIR 2
  StrCpy $1 $INSTDIR 1 2
  StrLen $2 $INSTDIR
  ${If} $0 == "\\"
    Push "$(TextNetwork)"
    Return
  ${ElseIf} $2 < 4
  ${OrIf} $1 != "\"
    Push "$(TextWholeDrive)"
    Return
  ${EndIf}
  ${If} $2 > ${MAX_FOLDER_LENGTH}
    Push "$(TextTooLong)"
    Return
  ${EndIf}
  StrCpy $0 $INSTDIR 3
  System::Call 'kernel32::GetDriveTypeW(w r0) i .r1'
  ${If} $1 = ${DRIVE_REMOTE}
    Push "$(TextNetwork)"
    Return
  ${ElseIf} $1 = ${DRIVE_REMOVABLE}
    Push "$(TextRemovable)"
    Return
  ${ElseIf} $1 <> ${DRIVE_FIXED}
    Push "$(TextNoDrive)"
    Return
  ${EndIf}
  !macro RefuseInside VARIABLE
    ReadEnvStr $0 "${VARIABLE}"
    ${If} $0 != ""
      StrLen $1 "$0\"
      StrCpy $2 "$INSTDIR\" $1
      ${If} $2 == "$0\"
        Push "$(TextOneDrive)"
        Return
      ${EndIf}
    ${EndIf}
  !macroend
  !insertmacro RefuseInside "OneDrive"
  !insertmacro RefuseInside "OneDriveConsumer"
  !insertmacro RefuseInside "OneDriveCommercial"
  ${DirState} "$INSTDIR" $0
  ${If} $0 = 1 ; holds something
  ${AndIfNot} ${FileExists} "$INSTDIR\program\payload.json"
  ${AndIfNot} ${FileExists} "$INSTDIR\Uninstall.exe"
    Push "$(TextNotEmpty)"
    Return
  ${EndIf}
  ClearErrors
  CreateDirectory "$INSTDIR"
  FileOpen $0 "$INSTDIR\.tunesmith-probe" w
  ${If} ${Errors}
    RMDir "$INSTDIR"
    Push "$(TextNotWritable)"
    Return
  ${EndIf}
  FileClose $0
  Delete "$INSTDIR\.tunesmith-probe"
  Push ""
FunctionEnd

Function LeaveFolderPage
  Call FolderProblem
  Pop $0
  ${If} $0 != ""
    MessageBox MB_OK|MB_ICONSTOP "$0"
    Abort
  ${EndIf}
FunctionEnd

Section "${PRODUCT}"
  SetDetailsPrint none
  Call FolderProblem
  Pop $0
  SetDetailsPrint both
  ${If} $0 != ""
    !insertmacro Refuse "" "$0" ${EXIT_BAD_INPUT}
  ${EndIf}
  SectionIn RO
  StrCpy $Staging "$INSTDIR\program.new"
  RMDir /r "$Staging"
  RMDir /r "$INSTDIR\program.old"
  DetailPrint "$(TextUnpacking)"
  SetDetailsPrint none
  !include files.nsh
  SetOutPath "$INSTDIR"
  SetDetailsPrint both
  ${If} ${Errors}
    RMDir /r "$Staging"
    !insertmacro Refuse "" "$(TextNotUnpacked)" ${EXIT_ENVIRONMENT}
  ${EndIf}

  DetailPrint "$(TextChecking)"
!ifdef BUNDLED_PYTHON
  StrCpy $0 "$Staging\python"
!else
  StrCpy $0 $PythonFolder
!endif
  nsExec::ExecToStack /TIMEOUT=600000 '"$0\python.exe" ${ISOLATED} -B "$Staging\${START}" tunesmith_setup program --check "$Staging"'
  Pop $0
  Pop $1
  ${If} $0 != 0
    SetOutPath "$TEMP" ; the current folder can't be removed
    RMDir /r "$Staging"
    RMDir "$INSTDIR"
    ; Where the check itself was damaged, what it said is for nobody.
    ${If} $0 != ${EXIT_ENVIRONMENT}
      StrCpy $1 ""
    ${EndIf}
    !insertmacro Refuse "" "$(TextDamaged)$\r$\n$\r$\n$1" ${EXIT_ENVIRONMENT}
  ${EndIf}

  ClearErrors
  ${If} ${FileExists} "$INSTDIR\program\*"
    Rename "$INSTDIR\program" "$INSTDIR\program.old"
  ${EndIf}
  ${If} ${Errors}
    RMDir /r "$Staging"
    !insertmacro Refuse "" "$(TextInUse)" ${EXIT_ENVIRONMENT}
  ${EndIf}
  Rename "$Staging" "$INSTDIR\program"
  ${If} ${Errors}
    Rename "$INSTDIR\program.old" "$INSTDIR\program"
    RMDir /r "$Staging"
    !insertmacro Refuse "" "$(TextNotUnpacked)" ${EXIT_ENVIRONMENT}
  ${EndIf}
  RMDir /r "$INSTDIR\program.old"

  DetailPrint "$(TextRegistering)"
  StrCpy $1 '${ISOLATED} "$INSTDIR\program\${START}" tunesmith_setup start'
  StrCpy $2 "$INSTDIR\program\tunesmith.ico"
  CreateShortCut "$SMPROGRAMS\${PRODUCT}.lnk" "$PythonFolder\pythonw.exe" $1 "$2" 0 SW_SHOWNORMAL "" "$(TextComment)"
  CreateShortCut "$DESKTOP\${PRODUCT}.lnk" "$PythonFolder\pythonw.exe" $1 "$2" 0 SW_SHOWNORMAL "" "$(TextComment)"
  WriteUninstaller "$INSTDIR\Uninstall.exe"
  WriteRegStr HKCU "${UNINSTALL_KEY}" "DisplayName" "${PRODUCT}"
  WriteRegStr HKCU "${UNINSTALL_KEY}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${UNINSTALL_KEY}" "DisplayIcon" "$2"
  WriteRegStr HKCU "${UNINSTALL_KEY}" "Publisher" "The Tunesmith project"
  WriteRegStr HKCU "${UNINSTALL_KEY}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${UNINSTALL_KEY}" "PythonFolder" "$PythonFolder"
  WriteRegStr HKCU "${UNINSTALL_KEY}" "UninstallString" '"$INSTDIR\Uninstall.exe"'
  WriteRegStr HKCU "${UNINSTALL_KEY}" "QuietUninstallString" '"$INSTDIR\Uninstall.exe" /S'
  WriteRegDWORD HKCU "${UNINSTALL_KEY}" "EstimatedSize" ${SIZE_KIB}
  WriteRegDWORD HKCU "${UNINSTALL_KEY}" "NoModify" 1
  WriteRegDWORD HKCU "${UNINSTALL_KEY}" "NoRepair" 1
SectionEnd

Function OpenTunesmith
  ExecShell "open" "$SMPROGRAMS\${PRODUCT}.lnk"
FunctionEnd

Function un.onInit
  SetRegView 64
  !insertmacro MUI_UNGETLANGUAGE
  ${GetParameters} $0
  ClearErrors
  ${GetOptions} $0 "/DATA=" $RemoveData
  ${IfNot} ${Silent}
    MessageBox MB_YESNO|MB_ICONQUESTION|MB_DEFBUTTON2 "$(TextAskData)" IDNO keep
    StrCpy $RemoveData "remove"
    keep:
  ${EndIf}
FunctionEnd

Section "Uninstall"
  ; A folder with an open program can't be renamed: nothing is half removed.
  ClearErrors
  ${If} ${FileExists} "$INSTDIR\program\payload.json"
    Rename "$INSTDIR\program" "$INSTDIR\program.old"
  ${EndIf}
  ${If} ${Errors}
    !insertmacro Refuse "un." "$(TextInUse)" ${EXIT_ENVIRONMENT}
  ${EndIf}
  ${IfNot} ${FileExists} "$INSTDIR\program.old\payload.json"
    !insertmacro Refuse "un." "$(TextNothingHere)" ${EXIT_BAD_INPUT}
  ${EndIf}

  DetailPrint "$(TextRemovingData)"
  StrCpy $2 "uninstall --yes"
  ${If} $RemoveData == "remove"
    StrCpy $2 "$2 --with-runs --with-models"
  ${EndIf}
!ifdef BUNDLED_PYTHON
  StrCpy $PythonFolder "$INSTDIR\program.old\python"
!else
  ReadRegStr $PythonFolder HKCU "${UNINSTALL_KEY}" "PythonFolder"
!endif
  nsExec::ExecToStack /TIMEOUT=600000 '"$PythonFolder\python.exe" ${ISOLATED} "$INSTDIR\program.old\${START}" tunesmith_setup $2'
  Pop $0
  Pop $1
  ${If} $0 != 0
    Push "$(TextDataLeft)$\r$\n$\r$\n$1"
    Call un.Tell
  ${EndIf}

  RMDir /r "$INSTDIR\program.old"
  Delete "$SMPROGRAMS\${PRODUCT}.lnk"
  Delete "$DESKTOP\${PRODUCT}.lnk"
  Delete "$INSTDIR\Uninstall.exe"
  SetOutPath "$TEMP"
  RMDir "$INSTDIR"
  DeleteRegKey HKCU "${UNINSTALL_KEY}"
  DeleteRegKey HKCU "${SETTINGS_KEY}"
  DeleteRegKey /ifempty HKCU "Software\${PRODUCT}"
SectionEnd
