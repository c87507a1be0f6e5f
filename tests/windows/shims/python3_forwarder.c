/* python3.dll: its .def file forwards every export of the versioned library, which is all that abi3 wheels need. */
int DllMain(void *library, unsigned reason, void *reserved) { return 1; }
