import de.bwaldvogel.mongo.MongoBackend;
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * A server that speaks MongoDB's protocol and keeps its data in one file: {@code java -jar mongo.jar PORT FILE}. With a
 * final {@code passing} the file is unlinked at once, so that its data disappear with the server.
 * It listens on loopback, or on the address in {@code ADDRESS}; no users, no replication; on SIGTERM the file is closed
 * properly.
 */
public final class Mongo {
    /**
     * The version reported to drivers. Current drivers require wire version 9 (MongoDB 4.4) at least; the highest of
     * mongo-java-server's own versions reports a lower one.
     */
    private static final MongoVersion VERSION = new MongoVersion() {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(4, 4, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 9;
        }
    };

    private Mongo() {}

    public static void main(String[] args) throws Exception {
        boolean passing = args.length == 3 && args[2].equals("passing");
        if (args.length != 2 && !passing) {
            fail("usage: java -jar mongo.jar PORT FILE [passing]");
        }
        Path file = Path.of(args[1]).toAbsolutePath();
        Files.createDirectories(file.getParent());
        MongoBackend backend = new H2Backend(file.toString()).version(VERSION);
        if (passing) {
            Files.delete(file);
        }
        String address = System.getenv().getOrDefault("ADDRESS", "127.0.0.1");
        MongoServer server = new MongoServer(backend);
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdownNow));
        try {
            server.bind(new InetSocketAddress(address, Integer.parseInt(args[0])));
        } catch (Exception error) {
            // Netty throws it without declaring it.
            fail("cannot listen on " + address + ":" + args[0] + ": "
                    + (error instanceof BindException ? error.getMessage() : error.toString()));
        }
        System.out.println("listening on " + server.getLocalAddress().getPort() + ", data in " + file);
    }

    private static void fail(String why) {
        System.err.println("mongo: " + why);
        System.exit(1);
    }
}
