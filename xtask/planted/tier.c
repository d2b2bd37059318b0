/*
 * A tier of a planted system: HTTP/1.1, one thread per connection. Options set what a request costs, and whether one
 * waits for another. Requests have no body.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096

static struct {
    const char *listen, *upstream, *fsync, *direct, *index;
    int backlog, accept_us, per_request, sleep_us, is_locked, heap_mb, pages, leak_kb;
    int body;
} options = {.backlog = 511};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1;
static off_t file_end;
static unsigned char *mapped;
static size_t mapped_size;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void pause_us(long us) {
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

/* Parses `HOST:PORT` or `unix:PATH`. */
static socklen_t address_of(const char *text, struct sockaddr_storage *address) {
    memset(address, 0, sizeof *address);
    if (!strncmp(text, "unix:", 5)) {
        struct sockaddr_un *un = (struct sockaddr_un *)address;
        un->sun_family = AF_UNIX;
        strncpy(un->sun_path, text + 5, sizeof un->sun_path - 1);
        return sizeof *un;
    }
    char host[64];
    const char *colon = strrchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof host) {
        fprintf(stderr, "not HOST:PORT: %s\n", text);
        exit(2);
    }
    memcpy(host, text, colon - text);
    host[colon - text] = 0;
    struct sockaddr_in *in = (struct sockaddr_in *)address;
    in->sin_family = AF_INET;
    in->sin_port = htons(atoi(colon + 1));
    if (inet_pton(AF_INET, host, &in->sin_addr) != 1) {
        fprintf(stderr, "not an address: %s\n", host);
        exit(2);
    }
    return sizeof *in;
}

static int connected(const char *to) {
    struct sockaddr_storage address;
    socklen_t size = address_of(to, &address);
    int one = 1, fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, size)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static int send_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return -1;
        data += sent;
        size -= sent;
    }
    return 0;
}

/* Reads headers, up to the empty line. Returns their length, or -1; `have` is the number of bytes read in all. */
static ssize_t read_head(int fd, char *buffer, size_t size, size_t *have) {
    *have = 0;
    while (*have + 1 < size) {
        ssize_t got = recv(fd, buffer + *have, size - 1 - *have, 0);
        if (got <= 0)
            return -1;
        *have += got;
        buffer[*have] = 0;
        char *end = strstr(buffer, "\r\n\r\n");
        if (end)
            return end + 4 - buffer;
    }
    return -1;
}

/* Sends one request and reads its whole answer. */
static int ask(int fd) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: upstream\r\n\r\n";
    char buffer[16384];
    size_t have;
    if (send_all(fd, request, sizeof request - 1))
        return -1;
    ssize_t head = read_head(fd, buffer, sizeof buffer, &have);
    if (head < 0)
        return -1;
    char *length = strcasestr(buffer, "\r\ncontent-length:");
    long left = (length && length < buffer + head ? atol(length + 17) : 0) - (long)(have - head);
    while (left > 0) {
        ssize_t got = recv(fd, buffer, left < (long)sizeof buffer ? left : (long)sizeof buffer, 0);
        if (got <= 0)
            return -1;
        left -= got;
    }
    return strncmp(buffer + 9, "200", 3) ? -1 : 0;
}

/* Asks the next tier: on the thread's own connection, or on a new one. */
static int ask_upstream(int *fd) {
    if (options.per_request || *fd < 0)
        *fd = connected(options.upstream);
    if (*fd < 0)
        return -1;
    int failed = ask(*fd);
    if (failed || options.per_request) {
        close(*fd);
        *fd = -1;
    }
    return failed;
}

/* Writes a record at the end of the log; it is on disk before it is confirmed. */
static int write_record(void) {
    static const char record[BLOCK] __attribute__((aligned(BLOCK)));
    off_t at = __atomic_fetch_add(&file_end, BLOCK, __ATOMIC_RELAXED);
    if (pwrite(file, record, BLOCK, at) != BLOCK)
        return -1;
    return options.fsync ? fsync(file) : 0;
}

/* Looks up keys at random places in the index. */
static int look_up(unsigned *seed) {
    int sum = 0;
    for (int i = 0; i < options.pages; i++) {
        size_t page = ((size_t)rand_r(seed) << 16 ^ rand_r(seed)) % (mapped_size / BLOCK);
        sum += *(volatile unsigned char *)(mapped + page * BLOCK);
    }
    return sum;
}

/* Allocates memory, and keeps it in use. */
static void take_memory(size_t size) {
    static void *volatile taken;
    taken = malloc(size);
    if (!taken)
        die("memory");
    memset(taken, 1, size);
}

static int work(int *upstream, unsigned *seed) {
    if (options.is_locked)
        pthread_mutex_lock(&lock);
    if (options.sleep_us)
        pause_us(options.sleep_us);
    int failed = file >= 0 && write_record();
    if (options.is_locked)
        pthread_mutex_unlock(&lock);
    if (mapped)
        look_up(seed);
    if (options.leak_kb)
        take_memory((size_t)options.leak_kb << 10);
    return failed || (options.upstream && ask_upstream(upstream));
}

static void *serve(void *argument) {
    int fd = (int)(long)argument, upstream = -1, one = 1;
    unsigned seed = fd;
    char buffer[8192];
    char *answer = malloc(256 + options.body);
    int size = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", options.body);
    memset(answer + size, 'x', options.body);
    size += options.body;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (size_t have; read_head(fd, buffer, sizeof buffer, &have) > 0;) {
        static const char error[] = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";
        int failed = work(&upstream, &seed);
        if (send_all(fd, failed ? error : answer, failed ? sizeof error - 1 : (size_t)size))
            break;
    }
    free(answer);
    close(fd);
    if (upstream >= 0)
        close(upstream);
    return NULL;
}

/* Opens the files that requests write to or read from. */
static void open_files(void) {
    const char *log = options.fsync ? options.fsync : options.direct;
    if (log) {
        file = open(log, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | (options.direct ? O_DIRECT : 0), 0644);
        if (file < 0)
            die(log);
    }
    if (options.index) {
        int fd = open(options.index, O_RDONLY | O_CLOEXEC);
        mapped_size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
        mapped = mmap(NULL, mapped_size, PROT_READ, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED)
            die(options.index);
        madvise(mapped, mapped_size, MADV_RANDOM);
    }
    if (options.heap_mb)
        take_memory((size_t)options.heap_mb << 20);
}

static void read_options(int count, char **words) {
    struct {
        const char *name, **text;
        int *number, *flag;
    } known[] = {
        {"--listen", &options.listen, 0, 0},         /* HOST:PORT or unix:PATH */
        {"--upstream", &options.upstream, 0, 0},     /* the next tier, asked after the own work */
        {"--per-request", 0, 0, &options.per_request}, /* a new connection to it for each request */
        {"--sleep-us", 0, &options.sleep_us, 0},     /* own work that waits */
        {"--locked", 0, 0, &options.is_locked},      /* the own work is done in a mutex */
        {"--fsync", &options.fsync, 0, 0},           /* writes a record to this file, and calls fsync */
        {"--direct", &options.direct, 0, 0},         /* writes a record to this file, past the page cache */
        {"--index", &options.index, 0, 0},           /* maps this file, and reads … */
        {"--pages", 0, &options.pages, 0},           /* … this many of its pages */
        {"--heap-mb", 0, &options.heap_mb, 0},       /* memory that it has from the start */
        {"--leak-kb", 0, &options.leak_kb, 0},       /* memory that each request takes for ever */
        {"--backlog", 0, &options.backlog, 0},       /* of listen(2) */
        {"--accept-us", 0, &options.accept_us, 0},   /* what accepting a connection costs, one after the other */
        {"--body", 0, &options.body, 0},             /* bytes of an answer's body */
    };
    for (int i = 1; i < count; i++) {
        size_t k = 0, all = sizeof known / sizeof *known;
        while (k < all && strcmp(words[i], known[k].name))
            k++;
        if (k == all || (!known[k].flag && i + 1 == count)) {
            fprintf(stderr, "unknown option, or one without its value: %s\n", words[i]);
            exit(2);
        }
        if (known[k].flag)
            *known[k].flag = 1;
        else if (known[k].text)
            *known[k].text = words[++i];
        else
            *known[k].number = atoi(words[++i]);
    }
}

int main(int count, char **words) {
    read_options(count, words);
    open_files();
    struct sockaddr_storage address;
    socklen_t size = address_of(options.listen ? options.listen : "", &address);
    int one = 1, listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        die("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, options.backlog))
        die(options.listen);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    for (;;) {
        pthread_t thread;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        if (options.accept_us)
            pause_us(options.accept_us);
        if (pthread_create(&thread, &attributes, serve, (void *)(long)fd))
            close(fd);
    }
}
