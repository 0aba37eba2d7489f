// Source file of the targets that own the precompiled headers (cmake/Modules.cmake).
