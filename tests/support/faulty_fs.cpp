// Serves the file system of faulty_fs.h: faulty_fs BACKING MOUNTPOINT FAULTS. Passes every
// operation to the directory BACKING, except those that the file FAULTS lets fail ("OPERATION ERROR
// PART"), or, with the error HOLD, write a byte to FAULTS.held and wait for one in FAULTS.go.
// Prints "mounted" when it is ready; SIGTERM unmounts it. One thread.
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <utility>

namespace {

// An open file, by device and inode.
using FileId = std::pair<dev_t, ino_t>;
struct OpenFile {
  int handles = 0;
  std::string silly_name;  // empty: not deleted
};

struct FileSystem {
  std::string backing;
  std::string faults;
  std::map<FileId, OpenFile> open_files;
  std::map<int, FileId> handles;  // by descriptor, until the first close()
  int silly_names = 0;
};

FileSystem& file_system() { return *static_cast<FileSystem*>(fuse_get_context()->private_data); }

std::string real(const char* path) { return file_system().backing + path; }

int error_number(const std::string& name) {
  if (name == "ENOSPC") return ENOSPC;
  if (name == "ESTALE") return ESTALE;
  if (name == "EPERM") return EPERM;
  if (name == "EACCES") return EACCES;
  if (name == "EINVAL") return EINVAL;
  return EIO;
}

// The negative error that the file FAULTS names for this operation; 0: none. `path` is null for a
// file that is open and has been removed.
int fault(const std::string& operation, const char* path_or_null) {
  const std::string path = path_or_null == nullptr ? "" : path_or_null;
  std::ifstream in(file_system().faults);
  std::string name, error, part;
  in >> name >> error >> part;
  const bool hit = name == operation && path.find(part) != std::string::npos;
  if (!hit) return 0;
  if (error != "HOLD") return -error_number(error);
  std::ofstream(file_system().faults + ".held") << 'x' << std::flush;
  std::ifstream(file_system().faults + ".go").get();
  return 0;
}

int result(int outcome) { return outcome < 0 ? -errno : 0; }

// Gives a file that is open and about to disappear a name of its own. False: it is not open, or it
// has another name.
bool silly_rename(const std::string& path) {
  FileSystem& fs = file_system();
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || status.st_nlink > 1) return false;
  const auto file = fs.open_files.find({status.st_dev, status.st_ino});
  if (file == fs.open_files.end() || !file->second.silly_name.empty()) return false;
  const std::string folder = path.substr(0, path.rfind('/'));
  const std::string silly = folder + "/.nfs" + std::to_string(++fs.silly_names);
  if (rename(path.c_str(), silly.c_str()) != 0) return false;
  file->second.silly_name = silly;
  return true;
}

int fs_getattr(const char* path, struct stat* status, fuse_file_info* info) {
  if (const int error = fault("getattr", path)) return error;
  if (info != nullptr) return result(fstat(static_cast<int>(info->fh), status));
  return result(lstat(real(path).c_str(), status));
}

int fs_mkdir(const char* path, mode_t mode) {
  if (const int error = fault("mkdir", path)) return error;
  return result(mkdir(real(path).c_str(), mode));
}

int fs_unlink(const char* path) {
  if (const int error = fault("unlink", path)) return error;
  const std::string file = real(path);
  if (silly_rename(file)) return 0;
  return result(unlink(file.c_str()));
}

int fs_rmdir(const char* path) {
  if (const int error = fault("rmdir", path)) return error;
  return result(rmdir(real(path).c_str()));
}

int fs_rename(const char* from, const char* to, unsigned int flags) {
  if (const int error = fault("rename", (std::string(from) + " " + to).c_str())) return error;
  if (flags != 0) return -EINVAL;
  silly_rename(real(to));
  return result(rename(real(from).c_str(), real(to).c_str()));
}

int fs_link(const char* from, const char* to) {
  if (const int error = fault("link", to)) return error;
  return result(link(real(from).c_str(), real(to).c_str()));
}

int fs_chmod(const char* path, mode_t mode, fuse_file_info* info) {
  if (info != nullptr) return result(fchmod(static_cast<int>(info->fh), mode));
  return result(chmod(real(path).c_str(), mode));
}

int fs_truncate(const char* path, off_t size, fuse_file_info* info) {
  if (const int error = fault("truncate", path)) return error;
  if (info != nullptr) return result(ftruncate(static_cast<int>(info->fh), size));
  return result(truncate(real(path).c_str(), size));
}

int fs_utimens(const char* path, const timespec times[2], fuse_file_info* info) {
  if (info != nullptr) return result(futimens(static_cast<int>(info->fh), times));
  return result(utimensat(AT_FDCWD, real(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
}

int fs_access(const char* path, int mode) { return result(access(real(path).c_str(), mode)); }

int fs_statfs(const char* path, struct statvfs* status) {
  return result(statvfs(real(path).c_str(), status));
}

int open_file(const char* path, int flags, mode_t mode, fuse_file_info* info) {
  const int fd = open(real(path).c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return -errno;
  info->fh = static_cast<std::uint64_t>(fd);
  struct stat status {};
  if (fstat(fd, &status) != 0) return -errno;
  FileSystem& fs = file_system();
  const FileId id{status.st_dev, status.st_ino};
  fs.handles[fd] = id;
  ++fs.open_files[id].handles;
  return 0;
}

int fs_open(const char* path, fuse_file_info* info) {
  if (const int error = fault("open", path)) return error;
  return open_file(path, info->flags, 0, info);
}

int fs_create(const char* path, mode_t mode, fuse_file_info* info) {
  if (const int error = fault("create", path)) return error;
  return open_file(path, info->flags | O_CREAT, mode, info);
}

void end_handle(int fd) {
  FileSystem& fs = file_system();
  const auto handle = fs.handles.extract(fd);
  if (!handle) return;
  const auto file = fs.open_files.find(handle.mapped());
  if (--file->second.handles > 0) return;
  if (!file->second.silly_name.empty()) unlink(file->second.silly_name.c_str());
  fs.open_files.erase(file);
}

// close() waits for this operation; release follows at some later time.
int fs_flush(const char*, fuse_file_info* info) {
  end_handle(static_cast<int>(info->fh));
  return 0;
}

int fs_release(const char*, fuse_file_info* info) {
  end_handle(static_cast<int>(info->fh));
  close(static_cast<int>(info->fh));
  return 0;
}

int fs_read(const char* path, char* buffer, size_t size, off_t offset, fuse_file_info* info) {
  if (const int error = fault("read", path)) return error;
  const ssize_t count = pread(static_cast<int>(info->fh), buffer, size, offset);
  return count < 0 ? -errno : static_cast<int>(count);
}

int fs_write(const char* path, const char* buffer, size_t size, off_t offset,
             fuse_file_info* info) {
  if (const int error = fault("write", path)) return error;
  const ssize_t count = pwrite(static_cast<int>(info->fh), buffer, size, offset);
  return count < 0 ? -errno : static_cast<int>(count);
}

int fs_fsync(const char* path, int, fuse_file_info* info) {
  if (const int error = fault("fsync", path)) return error;
  return result(fsync(static_cast<int>(info->fh)));
}

int fs_fsyncdir(const char* path, int, fuse_file_info*) {
  if (const int error = fault("fsyncdir", path)) return error;
  return fault("fsync", path);
}

int fs_readdir(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*,
               fuse_readdir_flags) {
  if (const int error = fault("readdir", path)) return error;
  DIR* directory = opendir(real(path).c_str());
  if (directory == nullptr) return -errno;
  while (const dirent* entry = readdir(directory)) {
    if (fill(buffer, entry->d_name, nullptr, 0, fuse_fill_dir_flags{}) != 0) break;
  }
  closedir(directory);
  return 0;
}

void* fs_init(fuse_conn_info*, fuse_config* config) {
  config->hard_remove = 1;  // silly renames are ours
  config->attr_timeout = 0;
  config->entry_timeout = 0;
  config->negative_timeout = 0;
  std::cout << "mounted" << std::endl;
  return fuse_get_context()->private_data;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: faulty_fs BACKING MOUNTPOINT FAULTS\n";
    return 2;
  }
  FileSystem fs;
  fs.backing = argv[1];
  fs.faults = argv[3];
  fuse_operations operations{};
  operations.getattr = fs_getattr;
  operations.mkdir = fs_mkdir;
  operations.unlink = fs_unlink;
  operations.rmdir = fs_rmdir;
  operations.rename = fs_rename;
  operations.link = fs_link;
  operations.chmod = fs_chmod;
  operations.truncate = fs_truncate;
  operations.utimens = fs_utimens;
  operations.access = fs_access;
  operations.statfs = fs_statfs;
  operations.open = fs_open;
  operations.create = fs_create;
  operations.flush = fs_flush;
  operations.release = fs_release;
  operations.read = fs_read;
  operations.write = fs_write;
  operations.fsync = fs_fsync;
  operations.fsyncdir = fs_fsyncdir;
  operations.readdir = fs_readdir;
  operations.init = fs_init;
  // -f: in the foreground; -s: one thread.
  const char* arguments[] = {"faulty_fs", "-f", "-s", argv[2], nullptr};
  return fuse_main(4, const_cast<char**>(arguments), &operations, &fs);
}
