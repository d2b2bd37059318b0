// A service with a planted hot function. Three quarters of its work are in one function, the rest in another.

import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;

public class Hot {
    static volatile int sink;

    static void plantedHot() {
        int x = 1;
        for (int i = 0; i < 18_000_000; i++) {
            x ^= x << 13;
            x ^= x >>> 17;
            x ^= x << 5;
        }
        sink = x;
    }

    static void plantedWarm() {
        int x = 3;
        for (int i = 0; i < 6_000_000; i++) {
            x ^= x << 13;
            x ^= x >>> 17;
            x ^= x << 5;
        }
        sink = x;
    }

    public static void main(String[] args) throws Exception {
        // Have both compiled before the first request, as in a service that has run for a while.
        for (int i = 0; i < 30; i++) {
            plantedHot();
            plantedWarm();
        }
        InetAddress address = InetAddress.getLoopbackAddress();
        HttpServer server = HttpServer.create(new InetSocketAddress(address, Integer.parseInt(args[0])), 0);
        byte[] body = "ok\n".getBytes();
        server.createContext("/", exchange -> {
            plantedHot();
            plantedWarm();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
