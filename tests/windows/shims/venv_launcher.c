/* Scripts\python.exe of a virtual environment. As CPython's own launcher it is a process of its own: it starts the
   base Python that pyvenv.cfg names with the same command line, in a job that ends with it, and waits for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>

static int read_home(const wchar_t *own_path, wchar_t *home) {
    wchar_t path[32768];
    char line[4096];
    wcscpy(path, own_path);
    *wcsrchr(path, L'\\') = 0;
    wcscpy(wcsrchr(path, L'\\') + 1, L"pyvenv.cfg");
    FILE *file = _wfopen(path, L"rb");
    if (!file) return 0;
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = 0;
        found = !strncmp(line, "home = ", 7) && MultiByteToWideChar(CP_UTF8, 0, line + 7, -1, home, 32000) > 0;
    }
    fclose(file);
    return found;
}

int wmain(void) {
    static wchar_t own[32768], python[32768];
    STARTUPINFOW start = {.cb = sizeof start};
    PROCESS_INFORMATION child;
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    DWORD code = 1;

    GetModuleFileNameW(NULL, own, 32768);
    if (!read_home(own, python)) {
        fwprintf(stderr, L"No pyvenv.cfg file\n");
        return 106;
    }
    wcscat(python, L"\\python.exe");
    SetEnvironmentVariableW(L"__PYVENV_LAUNCHER__", own);
    HANDLE job = CreateJobObjectW(NULL, NULL);
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    GetStartupInfoW(&start);
    start.lpReserved = NULL;
    SetConsoleCtrlHandler(NULL, FALSE);
    if (!CreateProcessW(python, GetCommandLineW(), NULL, NULL, TRUE, CREATE_SUSPENDED, NULL, NULL, &start, &child)) {
        fwprintf(stderr, L"%ls can't be started: error %lu\n", python, GetLastError());
        return 101;
    }
    AssignProcessToJobObject(job, child.hProcess);
    ResumeThread(child.hThread);
    WaitForSingleObject(child.hProcess, INFINITE);
    GetExitCodeProcess(child.hProcess, &code);
    return (int)code;
}
