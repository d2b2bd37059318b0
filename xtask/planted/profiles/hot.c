/*
 * A service with a planted hot function: HTTP/1.1, one thread per connection. Three quarters of its work are in one
 * function, the rest in another.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile uint64_t sink;

static uint64_t step(uint64_t x) {
    x ^= x << 13;
    x ^= x >> 7;
    return x ^ x << 17;
}

__attribute__((noinline)) static void planted_hot(void) {
    uint64_t x = 1;
    for (int i = 0; i < 300000; i++)
        x = step(x);
    sink = x;
}

__attribute__((noinline)) static void planted_warm(void) {
    uint64_t x = 3;
    for (int i = 0; i < 100000; i++)
        x = step(x);
    sink = x;
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
        planted_warm();
        planted_hot();
        if (write(fd, answer, sizeof answer - 1) < 0)
            break;
    }
    close(fd);
    return NULL;
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (count != 2)
        return 2;
    address.sin_port = htons((uint16_t)atoi(words[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) {
        perror("listen");
        return 1;
    }
    for (;;) {
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && !pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd))
            pthread_detach(thread);
    }
}
