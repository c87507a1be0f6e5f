/* bcryptprimitives.dll, absent in Wine 8: the random numbers that programs written in Rust ask for. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE target, SIZE_T length) {
    while (length) {
        ULONG part = length > 0x10000000 ? 0x10000000 : (ULONG)length;
        if (!SystemFunction036(target, part)) return FALSE;
        target += part;
        length -= part;
    }
    return TRUE;
}
