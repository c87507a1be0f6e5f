/* python.exe and pythonw.exe of the base Python: loads PYTHON_DLL from its own folder and calls Py_Main. */
#include <stdio.h>
#include <wchar.h>
#include <windows.h>

typedef int (*python_main)(int, wchar_t **);

int wmain(int count, wchar_t **arguments) {
    static wchar_t own[32768], path[32768];
    GetModuleFileNameW(NULL, own, 32768);
    wcscpy(path, own);
    wcscpy(wcsrchr(path, L'\\') + 1, PYTHON_DLL);
    HMODULE library = LoadLibraryExW(path, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
    if (!library) {
        fwprintf(stderr, L"%ls can't be loaded: error %lu\n", path, GetLastError());
        return 9;
    }
    arguments[0] = own; /* Python asks Windows for it, in a way that Wine does not answer. */
    return ((python_main)GetProcAddress(library, "Py_Main"))(count, arguments);
}
