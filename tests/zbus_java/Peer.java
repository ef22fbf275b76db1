// The real Java client of zbus, driven by one argument each: what it saw is printed, one line per fact.
//
//   java -cp ... Peer.java PORT mq QUEUE COUNT       produces, then consumes the same queue
//   java -cp ... Peer.java PORT pubsub QUEUE COUNT   one consumer of topic `a`, messages of topics `a` and `b`
//   java -cp ... Peer.java PORT rpc QUEUE COUNT      a service and its caller
//   java -cp ... Peer.java PORT serve QUEUE COUNT    a service alone, for callers of other wires; ends after COUNT
//   java -cp ... Peer.java PORT drain QUEUE COUNT    consumes what others have produced

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.zbus.client.Broker;
import org.zbus.client.Consumer;
import org.zbus.client.MqConfig;
import org.zbus.client.Producer;
import org.zbus.client.broker.SingleBroker;
import org.zbus.client.broker.SingleBrokerConfig;
import org.zbus.client.rpc.Remote;
import org.zbus.client.rpc.Rpc;
import org.zbus.client.rpc.RpcServiceHandler;
import org.zbus.client.service.Service;
import org.zbus.client.service.ServiceConfig;
import org.zbus.protocol.MessageMode;
import org.zbus.remoting.Message;

public class Peer {
    static final int WAIT_MS = 20_000;
    // Without types this client fails by itself, with a null pointer.
    static final Class<?>[] NUMBERS = {int.class, int.class};

    public static class Sums {
        @Remote
        public int plus(int a, int b) {
            return a + b;
        }

        @Remote
        public String greet(String name) {
            return "hello " + name;
        }
    }

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);  // its threads are no daemons
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String[] args) throws Exception {
        SingleBrokerConfig config = new SingleBrokerConfig();
        config.setBrokerAddress("127.0.0.1:" + args[0]);
        Broker broker = new SingleBroker(config);
        int count = Integer.parseInt(args[3]);
        switch (args[1]) {
            case "mq": produceAndConsume(broker, args[2], count); break;
            case "pubsub": publishAndSubscribe(broker, args[2], count); break;
            case "rpc": call(broker, args[2], count); break;
            case "serve": serve(broker, args[2], count); break;
            case "drain": drain(broker, args[2], count); break;
            default: throw new IllegalArgumentException(args[1]);
        }
    }

    static Message message(String body) {
        Message message = new Message();
        message.setBody(body);
        return message;
    }

    static void produceAndConsume(Broker broker, String mq, int count) throws Exception {
        Producer producer = new Producer(broker, mq, MessageMode.MQ);
        System.out.println("created " + producer.createMQ());
        for (int i = 0; i < count; i++) {
            System.out.println("stored " + producer.sendSync(message("m" + i), WAIT_MS).getStatus());
        }
        drain(broker, mq, count);
    }

    static void drain(Broker broker, String mq, int count) throws Exception {
        Consumer consumer = new Consumer(broker, mq, MessageMode.MQ);
        for (int i = 0; i < count; i++) {
            System.out.println("got " + consumer.recv(WAIT_MS).getBodyString());
        }
        consumer.close();
    }

    static void publishAndSubscribe(Broker broker, String mq, int count) throws Exception {
        Producer producer = new Producer(broker, mq, MessageMode.PubSub);
        producer.createMQ();
        MqConfig config = new MqConfig();
        config.setBroker(broker);
        config.setMq(mq);
        config.setMode(MessageMode.PubSub.intValue());
        config.setTopic("a");
        Consumer consumer = new Consumer(config);
        CountDownLatch done = new CountDownLatch(count);
        consumer.onMessage((message, session) -> {
            System.out.println("got " + message.getTopic() + " " + message.getBodyString());
            done.countDown();
        });
        System.out.println("listening");
        System.in.read();  // whoever started us has seen the subscription
        for (int i = 0; i < count; i++) {
            for (String topic : new String[] {"b", "a"}) {
                Message message = message("m" + i);
                message.setTopic(topic);
                producer.sendSync(message, WAIT_MS);
            }
        }
        System.out.println("all " + done.await(WAIT_MS, TimeUnit.MILLISECONDS));
    }

    static Service service(Broker broker, String mq, CountDownLatch served) {
        RpcServiceHandler handler = new RpcServiceHandler();
        handler.addModule("sums", new Sums());
        ServiceConfig config = new ServiceConfig();
        config.setBroker(broker);
        config.setMq(mq);
        config.setThreadCount(2);
        config.setServiceHandler(request -> {
            Message answer = handler.handleRequest(request);
            served.countDown();
            return answer;
        });
        Service service = new Service(config);
        service.start();
        return service;
    }

    static void call(Broker broker, String mq, int count) throws Exception {
        service(broker, mq, new CountDownLatch(count));
        new Producer(broker, mq, MessageMode.MQ).createMQ();
        Rpc rpc = new Rpc(broker, mq);
        rpc.setModule("sums");
        rpc.setTimeout(WAIT_MS);
        for (int i = 0; i < count; i++) {
            System.out.println("sum " + rpc.invokeSyncWithType(Integer.class, "plus", NUMBERS, i, 1));
        }
        System.out.println(rpc.invokeSyncWithType(String.class, "greet", new Class<?>[] {String.class}, "zbus"));
    }

    static void serve(Broker broker, String mq, int count) throws Exception {
        CountDownLatch served = new CountDownLatch(count);
        new Producer(broker, mq, MessageMode.MQ).createMQ();
        service(broker, mq, served);
        System.out.println("listening");
        System.out.println("all " + served.await(WAIT_MS, TimeUnit.MILLISECONDS));
        Thread.sleep(300);  // the last answer is on its way
    }
}
