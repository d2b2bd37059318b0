// A slow disk for one program, loaded into it with LD_PRELOAD: each sync takes DISK_MS milliseconds longer. Limits of
// control groups do not slow down what the kernel writes later, and a disk that is slow for all would slow RabbitMQ, too.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void) {
    const char *ms = getenv("DISK_MS");
    long long left_ns = ms ? atoll(ms) * 1000000 : 0;
    struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
    int interrupted;
    do {
        interrupted = nanosleep(&left, &left) != 0 && errno == EINTR;
    } while (interrupted);
}

int fdatasync(int file) {
    wait_for_disk();
    return (int)syscall(SYS_fdatasync, file);
}

int fsync(int file) {
    wait_for_disk();
    return (int)syscall(SYS_fsync, file);
}
