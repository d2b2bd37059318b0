/*
 * Elasticsearch 7.10.2 in one process, for labs: `java … Elasticsearch PORT DIRECTORY` serves HTTP on loopback, or on the
 * address in `ADDRESS`, and keeps its data in the directory, which it creates, and removes on an orderly shutdown
 * (SIGTERM or Ctrl-C). All other settings are Elasticsearch's defaults.
 */

import org.codelibs.elasticsearch.runner.ElasticsearchClusterRunner;

public final class Elasticsearch {
    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 2) {
            System.err.println("usage: java -cp 'target/classes:target/lib/*' Elasticsearch PORT DIRECTORY");
            System.exit(2);
        }
        var address = System.getenv().getOrDefault("ADDRESS", "127.0.0.1");
        var runner = new ElasticsearchClusterRunner();
        runner.onBuild((number, settings) -> {
            settings.put("discovery.type", "single-node");
            settings.put("network.host", "127.0.0.1");
            settings.put("http.host", address);
            settings.put("http.port", arguments[0]);
            settings.put("transport.port", "0"); // nobody asks for it: any free one
            settings.put("cluster.routing.allocation.disk.threshold_enabled", false); // a scratch index on any disk
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                runner.close();
            } catch (Exception problem) {
                System.err.println("cannot close: " + problem);
            }
            runner.clean();
        }));
        runner.build(ElasticsearchClusterRunner.newConfigs().basePath(arguments[1]).numOfNode(1));
        System.out.println("listening on http://" + address + ":" + arguments[0]);
        Thread.currentThread().join();
    }
}
