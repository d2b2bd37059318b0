/*
 * A service with a planted lock: HTTP/1.1, one thread per connection, and 64 idle threads. A request holds the lock for
 * two milliseconds, during which it sleeps; the others wait for the lock.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IDLE 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t of_queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_work = PTHREAD_COND_INITIALIZER;
static long turns, works;

__attribute__((noinline)) static void planted_lock(void) {
    pthread_mutex_lock(&lock);
    turns++;
}

__attribute__((noinline)) static void planted_turn(void) {
    struct timespec left = {0, 2000000};
    nanosleep(&left, NULL);
    turns++;
}

/* A worker without work, which checks for some now and then. */
static void *idle(void *of) {
    (void)of;
    pthread_mutex_lock(&of_queue);
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (!pthread_cond_timedwait(&has_work, &of_queue, &until))
            works++;
    }
    return NULL;
}

static void *serve(void *of) {
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
    int fd = (int)(intptr_t)of, on = 1;
    char head[4096];
    size_t have = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (;;) {
        ssize_t got = read(fd, head + have, sizeof head - 1 - have);
        if (got <= 0)
            break;
        have += (size_t)got;
        head[have] = 0;
        if (!strstr(head, "\r\n\r\n"))
            continue;
        have = 0;
        planted_lock();
        planted_turn();
        pthread_mutex_unlock(&lock);
        if (write(fd, answer, sizeof answer - 1) < 0)
            break;
    }
    close(fd);
    return NULL;
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    if (count != 2)
        return 2;
    for (int i = 0; i < IDLE; i++)
        if (pthread_create(&thread, NULL, idle, NULL))
            return 1;
    address.sin_port = htons((uint16_t)atoi(words[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) {
        perror("listen");
        return 1;
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && !pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd))
            pthread_detach(thread);
    }
}
