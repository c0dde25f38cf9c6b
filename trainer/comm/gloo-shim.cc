/* SPDX-License-Identifier: Apache-2.0 */
/* gloo-shim.cc - see gloo-shim.h.
 *
 * Gloo's own collectives are not used: a wait inside them cannot be ended from outside, a timeout of one
 * wait closes all connections, and their order of float additions depends on the message size. Here
 * a ticker thread wakes every wait each 20 ms, and the wait then checks whether to continue. That also
 * covers a case that Gloo does not report: when a connection breaks, Gloo notifies the buffers whose
 * messages have not begun, but not the buffer whose message is half transferred. */

#include "trainer/comm/gloo-shim.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

extern "C" {
#include "base/cleanup.h"
#include "base/clock.h"
}

namespace
{

using std::chrono::milliseconds;
namespace tcp = gloo::transport::tcp;

constexpr milliseconds tick_period(20);
/* Longer than any deadline, because Gloo's own timeout would close every connection of the mesh. */
constexpr milliseconds far_away(std::chrono::hours(24));
/* Gloo waits up to five times as long for a pair to connect with this process. */
constexpr milliseconds pair_timeout(2000);
constexpr uint64_t sentinel_slot = UINT64_MAX;

/* While a FastLoop is armed, Gloo's event loop turns every 200 us. Connecting and closing wait for
 * turns of that loop, which otherwise turns every 10 ms. A FastLoop must outlive the device, which
 * keeps a pointer to it. */
class FastLoop : public tcp::Handler
{
  public:
    explicit FastLoop(tcp::Device &device)
        : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))
    {
        if (fd_ >= 0) /* without the timer, connecting and closing are only slow */
            device.registerDescriptor(fd_, EPOLLIN, this);
    }
    ~FastLoop() override { (void)fd_close(fd_); }
    FastLoop(const FastLoop &) = delete;
    FastLoop &operator=(const FastLoop &) = delete;

    void arm(bool on)
    {
        long period_nsec = on ? 200000 : 0;
        struct itimerspec period = {{0, period_nsec}, {0, period_nsec}};
        /* a failure only makes connecting and closing slow */
        (void)timerfd_settime(fd_, 0, &period, nullptr);
    }
    void handleEvents(int) override
    {
        uint64_t expirations;
        /* the value is not needed: the event only makes the loop turn */
        (void)!::read(fd_, &expirations, sizeof(expirations));
    }

  private:
    int fd_;
};

struct GlooMessage {
    gloo::transport::UnboundBuffer *buffer;
    int peer;
    uint64_t slot;
    size_t offset, n_bytes;
    bool send;
};

/* Makes Gloo's thread post messages. If another thread posted them, Gloo's thread would poll in a
 * busy loop while the other thread holds the connection's lock: with fewer cores than threads, this
 * loop takes processor time from the thread that holds the lock. A Poster must outlive the device,
 * which keeps a pointer to it. */
class Poster : public tcp::Handler
{
  public:
    explicit Poster(tcp::Device &device) : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
    {
        if (fd_ < 0)
            throw std::system_error(errno, std::system_category(), "eventfd");
        device.registerDescriptor(fd_, EPOLLIN, this);
    }
    ~Poster() override { (void)fd_close(fd_); }
    Poster(const Poster &) = delete;
    Poster &operator=(const Poster &) = delete;

    void add(const GlooMessage &message)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.push_back(message);
        pending_ = true;
    }
    void flush()
    {
        if (!pending_.exchange(false))
            return;
        uint64_t one = 1;
        (void)!::write(fd_, &one, sizeof(one)); /* fails only when fd_ is readable anyway */
    }
    /* Drops the messages of this buffer that are still queued. */
    void forget(const gloo::transport::UnboundBuffer *buffer)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        queue_.erase(std::remove_if(queue_.begin(), queue_.end(),
                                    [&](const GlooMessage &m) { return m.buffer == buffer; }),
                     queue_.end());
    }
    void handleEvents(int) override
    {
        uint64_t count;
        (void)!::read(fd_, &count, sizeof(count)); /* the value is not needed */
        std::lock_guard<std::mutex> lock(mutex_);
        for (const GlooMessage &message : queue_)
            post(message);
        queue_.clear();
    }

  private:
    /* Posts one message. If that fails, the connection broke: the waits for this message are woken,
     * and check the connection. */
    static void post(const GlooMessage &message)
    {
        try {
            if (message.send)
                message.buffer->send(message.peer, message.slot, message.offset, message.n_bytes);
            else
                message.buffer->recv(message.peer, message.slot, message.offset, message.n_bytes);
        } catch (...) {
            message.buffer->abortWaitRecv();
            message.buffer->abortWaitSend();
        }
    }
    int fd_;
    std::mutex mutex_;
    std::vector<GlooMessage> queue_;
    std::atomic<bool> pending_{false};
};

/* Gloo makes its connections itself, and a pair accepts the first connection to its port, whoever
 * made it. Gloo cannot be given a connection that is established and proven. So each pair is first
 * connected with this process, over loopback, and then the socket behind the pair's descriptor is
 * exchanged. */
class Door
{
  public:
    Door() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        here_.sin_family = AF_INET;
        here_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t n = sizeof(here_);
        if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr *>(&here_), n) < 0 ||
            listen(fd_, 16) < 0 || getsockname(fd_, reinterpret_cast<sockaddr *>(&here_), &n) < 0)
            throw std::system_error(errno, std::system_category(), "a port at loopback");
    }
    ~Door() { (void)fd_close(fd_); }
    Door(const Door &) = delete;
    Door &operator=(const Door &) = delete;

    std::vector<char> address() const
    {
        return tcp::Address(reinterpret_cast<const sockaddr *>(&here_), sizeof(here_)).bytes();
    }
    /* Accepts the connection that was made from the given address, and returns its descriptor.
     * Other processes of this machine may connect, too: their connections are closed. */
    int accept_from(const sockaddr_in &from)
    {
        for (int strangers = 0; strangers < 1000; strangers++) {
            sockaddr_in peer = {};
            socklen_t n = sizeof(peer);
            int fd = accept4(fd_, reinterpret_cast<sockaddr *>(&peer), &n, SOCK_CLOEXEC);
            if (fd >= 0 && same(peer, from))
                return fd;
            (void)fd_close(fd);
        }
        throw std::runtime_error("strangers crowd a port at loopback");
    }
    /* Returns the descriptor of the connection's other end, which Gloo holds in this process. */
    int find_far_end(const sockaddr_in &from) const
    {
        std::unique_ptr<DIR, int (*)(DIR *)> dir(opendir("/proc/self/fd"), closedir);
        while (const dirent *entry = dir ? readdir(dir.get()) : nullptr) {
            sockaddr_in own = {}, peer = {};
            socklen_t n_own = sizeof(own), n_peer = sizeof(peer);
            int fd = atoi(entry->d_name);
            if (getsockname(fd, reinterpret_cast<sockaddr *>(&own), &n_own) == 0 &&
                getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &n_peer) == 0 &&
                same(own, from) && same(peer, here_))
                return fd;
        }
        throw std::runtime_error("a connection of ours is not among /proc/self/fd");
    }

  private:
    static bool same(const sockaddr_in &a, const sockaddr_in &b)
    {
        return a.sin_family == AF_INET && b.sin_family == AF_INET && a.sin_port == b.sin_port &&
               a.sin_addr.s_addr == b.sin_addr.s_addr;
    }
    int fd_;
    sockaddr_in here_ = {};
};

struct MeshContext : gloo::Context {
    MeshContext(int own_rank, int world_size, std::shared_ptr<gloo::transport::Device> device)
        : gloo::Context(own_rank, world_size)
    {
        device_ = std::move(device);
        transportContext_ = device_->createContext(own_rank, world_size);
        transportContext_->setTimeout(pair_timeout);
    }
    gloo::transport::Pair &begin_pair(int peer) { return *transportContext_->createPair(peer); }
};

} // namespace

struct GlooMesh {
    std::unique_ptr<FastLoop> fast;
    std::unique_ptr<Poster> poster;
    std::shared_ptr<tcp::Device> device;
    std::unique_ptr<Door> door;
    std::unique_ptr<MeshContext> context;
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sentinels;
    std::atomic<bool> aborted{false};

    std::mutex mutex;
    std::condition_variable wake;
    gloo::transport::UnboundBuffer *waiting = nullptr; /* the buffer whose wait the ticker wakes */
    bool ending = false;
    std::thread ticker;

    void tick()
    {
        std::unique_lock<std::mutex> lock(mutex);
        while (!wake.wait_for(lock, tick_period, [&] { return ending; })) {
            if (waiting) {
                waiting->abortWaitRecv();
                waiting->abortWaitSend();
            }
        }
    }
    void set_waiting(gloo::transport::UnboundBuffer *buffer)
    {
        std::lock_guard<std::mutex> lock(mutex);
        waiting = buffer;
    }
    /* Posts a receive that never completes. Each connection has one, and Gloo fails it when the
     * connection breaks. */
    void post_sentinel(int peer)
    {
        sentinels[peer] = context->createUnboundBuffer(nullptr, 0);
        sentinels[peer]->recv(peer, sentinel_slot, 0, 0);
    }
    bool closed(int peer)
    {
        try {
            sentinels[peer]->abortWaitRecv(); /* so that the next line does not wait */
            /* waitRecv() returns false or throws */
            (void)sentinels[peer]->waitRecv(nullptr, far_away);
            return false;
        } catch (const gloo::IoException &) {
            return true;
        }
    }
    ~GlooMesh()
    {
        if (ticker.joinable()) {
            {
                std::lock_guard<std::mutex> lock(mutex);
                ending = true;
            }
            wake.notify_all();
            ticker.join();
        }
        if (fast)
            fast->arm(true);
        sentinels.clear();
        context.reset();
        device.reset();
    }
};

struct GlooBuffer {
    GlooMesh *mesh;
    int peer;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
};

/* Runs body, which returns 0 or -errno, and turns what it throws into an Error. */
template <typename Body> static int guarded(Error *err, const char *what, int peer, Body body)
{
    try {
        return body();
    } catch (const gloo::IoException &e) {
        return error_set(err, -ECONNRESET, "%s rank %d: %s", what, peer, e.what());
    } catch (const std::bad_alloc &) {
        return error_set(err, -ENOMEM, "%s rank %d: out of memory", what, peer);
    } catch (const std::exception &e) {
        return error_set(err, -EIO, "%s rank %d: %s", what, peer, e.what());
    } catch (...) {
        return error_set(err, -EIO, "%s rank %d: unknown exception", what, peer);
    }
}

int gloo_mesh_new(int rank, int size, GlooMesh **ret, Error *err)
{
    return guarded(err, "gloo: beginning as", rank, [&] {
        auto mesh = std::make_unique<GlooMesh>();
        /* Gloo lets the higher of two addresses call, so the pairs get a higher address than the
         * Door. */
        tcp::attr attr("127.0.0.2");
        mesh->device = std::dynamic_pointer_cast<tcp::Device>(tcp::CreateDevice(attr));
        mesh->fast = std::make_unique<FastLoop>(*mesh->device);
        mesh->poster = std::make_unique<Poster>(*mesh->device);
        mesh->door = std::make_unique<Door>();
        mesh->context = std::make_unique<MeshContext>(rank, size, mesh->device);
        mesh->sentinels.resize(size);
        mesh->ticker = std::thread(&GlooMesh::tick, mesh.get());
        *ret = mesh.release();
        return 0;
    });
}

GlooMesh *gloo_mesh_free(GlooMesh *mesh)
{
    (void)guarded(nullptr, "gloo: closing", 0, [&] { /* a failure to close cannot be handled */
                                                     delete mesh;
                                                     return 0;
    });
    return nullptr;
}

/* Replaces the socket of a pair by fd. Nothing was sent over the old connection, so Gloo's thread
 * gets no event when the old connection is closed. */
static void exchange(GlooMesh *mesh, gloo::transport::Pair &pair, int fd)
{
    auto &address = dynamic_cast<const tcp::Address &>(pair.address());
    auto local = reinterpret_cast<const sockaddr_in &>(address.getSockaddr());
    auto &handler = dynamic_cast<tcp::Handler &>(pair);
    int near = mesh->door->accept_from(local);
    int far = mesh->door->find_far_end(local), one = 1;
    int r = fcntl(fd, F_SETFL, O_NONBLOCK);
    if (r >= 0)
        r = setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (r >= 0)
        r = dup3(fd, far, O_CLOEXEC);
    int e = errno;
    (void)fd_close(near);
    if (r < 0)
        throw std::system_error(e, std::system_category(), "exchanging a socket");
    mesh->device->registerDescriptor(far, EPOLLIN, &handler);
}

int gloo_mesh_adopt(GlooMesh *mesh, int peer, int fd, Error *err)
{
    int r = guarded(err, "gloo: taking the connection to", peer, [&] {
        mesh->fast->arm(true);
        auto &pair = mesh->context->begin_pair(peer);
        pair.connect(mesh->door->address());
        exchange(mesh, pair, fd);
        mesh->fast->arm(false);
        mesh->post_sentinel(peer);
        return 0;
    });
    (void)fd_close(fd); /* Gloo has its own descriptor */
    return r;
}

void gloo_mesh_abort(GlooMesh *mesh) { mesh->aborted = true; }

int gloo_buffer_new(GlooMesh *mesh, int peer, void *memory, size_t n_bytes, GlooBuffer **ret,
                    Error *err)
{
    return guarded(err, "gloo: buffer for", peer, [&] {
        auto buffer = std::make_unique<GlooBuffer>();
        buffer->mesh = mesh;
        buffer->peer = peer;
        buffer->buffer = mesh->context->createUnboundBuffer(memory, n_bytes);
        *ret = buffer.release();
        return 0;
    });
}

GlooBuffer *gloo_buffer_free(GlooBuffer *buffer)
{
    if (buffer) {
        buffer->mesh->poster->forget(buffer->buffer.get());
        delete buffer;
    }
    return nullptr;
}

static int post(GlooBuffer *buffer, const char *what, uint64_t slot, size_t offset, size_t n_bytes,
                bool send, Error *err)
{
    return guarded(err, what, buffer->peer, [&] {
        buffer->mesh->poster->add(
            {buffer->buffer.get(), buffer->peer, slot, offset, n_bytes, send});
        return 0;
    });
}

int gloo_buffer_send(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes, Error *err)
{
    return post(buffer, "gloo: sending to", slot, offset, n_bytes, true, err);
}

int gloo_buffer_receive(GlooBuffer *buffer, uint64_t slot, size_t offset, size_t n_bytes,
                        Error *err)
{
    return post(buffer, "gloo: receiving from", slot, offset, n_bytes, false, err);
}

/* Waits for one message. wait() is waitRecv or waitSend: it returns true when the message is through, returns false
 * when the ticker woke it, and throws when the connection broke.
 *
 * No wait may reach Gloo's own timeout, which closes all connections: if a thread other than Gloo's closes them, it
 * can deadlock with Gloo's thread; if Gloo's thread closes them, the process ends. A message that was through before
 * the connection ended, or before the deadline, counts. But for a message that is through, wait() can return false,
 * too, if a tick falls between the previous wait and this wait, as it may when this thread is delayed there. So the
 * loop gives up only after wait() has returned false three times, each time after the deadline or on a closed
 * connection. The loop reads the clock before each wait. */
template <typename Wait>
static int wait_ticking(GlooBuffer *buffer, const char *what, uint64_t deadline_usec, Wait wait,
                        Error *err)
{
    GlooMesh *mesh = buffer->mesh;
    mesh->poster->flush();
    mesh->set_waiting(buffer->buffer.get());
    bool closed = false;
    for (int ticks_over = 0; ticks_over < 3;) {
        if (mesh->aborted)
            return error_set(err, -ECANCELED, "%s rank %d: aborted", what, buffer->peer);
        const bool late = clock_boottime_usec() >= deadline_usec;
        if (wait())
            return 0;
        closed = mesh->closed(buffer->peer);
        ticks_over += late || closed;
    }
    if (!closed)
        return error_set(err, -ETIMEDOUT, "%s rank %d: the deadline passed", what, buffer->peer);
    return error_set(err, -ECONNRESET, "%s rank %d: the connection is closed", what, buffer->peer);
}

static int buffer_wait(GlooBuffer *buffer, const char *what, uint64_t deadline_usec, bool sent,
                       Error *err)
{
    int r = guarded(err, what, buffer->peer, [&] {
        return wait_ticking(
            buffer, what, deadline_usec,
            [&] {
                return sent ? buffer->buffer->waitSend(nullptr, far_away)
                            : buffer->buffer->waitRecv(nullptr, far_away);
            },
            err);
    });
    buffer->mesh->set_waiting(nullptr);
    return r;
}

int gloo_buffer_wait_sent(GlooBuffer *buffer, uint64_t deadline_usec, Error *err)
{
    return buffer_wait(buffer, "gloo: sending to", deadline_usec, true, err);
}

int gloo_buffer_wait_received(GlooBuffer *buffer, uint64_t deadline_usec, Error *err)
{
    return buffer_wait(buffer, "gloo: receiving from", deadline_usec, false, err);
}
