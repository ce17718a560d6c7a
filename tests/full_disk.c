/* Preloaded, makes the disk below $FULL_FOLDER full: $FULL_COUNTER is a file with an 8-byte integer,
 * the number of calls that may still write there, which all processes of a build share. $FULL_ERROR
 * is the number of another error for the disk to have than ENOSPC. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long *remaining;
static const char *folder;
static int failure = ENOSPC;

__attribute__((constructor)) static void attach(void) {
    const char *counter = getenv("FULL_COUNTER");
    folder = getenv("FULL_FOLDER");
    if (!counter || !folder) return;
    if (getenv("FULL_ERROR")) failure = atoi(getenv("FULL_ERROR"));
    int descriptor = open(counter, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *shared = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (shared != MAP_FAILED) remaining = shared;
}

static int below(const char *path) {
    return strncmp(path, folder, strlen(folder)) == 0;
}

/* Whether the call that would write to this path fails. */
static int is_full(const char *path) {
    if (!remaining || !below(path)) return 0;
    if (__atomic_fetch_sub(remaining, 1, __ATOMIC_RELAXED) > 0) return 0;
    errno = failure;
    return 1;
}

static int is_full_at(int descriptor) {
    char link[64], path[4096];
    if (!remaining) return 0;
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (length < 0) return 0;
    path[length] = 0;
    return is_full(path);
}

#define WRITER(result, name, descriptor, parameters, arguments)                                    \
    result name parameters {                                                                       \
        static result(*next) parameters;                                                           \
        if (!next) next = dlsym(RTLD_NEXT, #name);                                                 \
        return is_full_at(descriptor) ? -1 : next arguments;                                       \
    }

WRITER(ssize_t, write, fd, (int fd, const void *data, size_t size), (fd, data, size))
WRITER(ssize_t, pwrite, fd, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRITER(ssize_t, pwrite64, fd, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRITER(ssize_t, writev, fd, (int fd, const struct iovec *data, int count), (fd, data, count))
WRITER(ssize_t, sendfile, to, (int to, int from, off_t *at, size_t size), (to, from, at, size))
WRITER(ssize_t, sendfile64, to, (int to, int from, off64_t *at, size_t size), (to, from, at, size))
WRITER(ssize_t, copy_file_range, to,
       (int from, off64_t *read, int to, off64_t *write, size_t size, unsigned flags),
       (from, read, to, write, size, flags))
WRITER(int, fallocate, fd, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
WRITER(int, fallocate64, fd, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
WRITER(int, ftruncate, fd, (int fd, off_t size), (fd, size))
WRITER(int, ftruncate64, fd, (int fd, off64_t size), (fd, size))

int mkdir(const char *path, mode_t mode) {
    static int (*next)(const char *, mode_t);
    if (!next) next = dlsym(RTLD_NEXT, "mkdir");
    return is_full(path) ? -1 : next(path, mode);
}

#define OPENER(name)                                                                               \
    int name(const char *path, int flags, ...) {                                                   \
        static int (*next)(const char *, int, ...);                                                \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                  \
        va_end(rest);                                                                              \
        if (!next) next = dlsym(RTLD_NEXT, #name);                                                 \
        if (flags & O_CREAT && access(path, F_OK) != 0 && is_full(path)) return -1;                \
        return next(path, flags, mode);                                                            \
    }

OPENER(open)
OPENER(open64)
