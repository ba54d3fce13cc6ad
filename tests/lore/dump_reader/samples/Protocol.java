import java.io.*;
import java.lang.reflect.*;
import java.util.*;

/** Streams that show the parts of Java serialization, and which classes a JVM resolves when it reads a stream. */
public class Protocol {
    enum Colour { RED, GREEN { @Override public String toString() { return "green"; } } }

    static class Parent implements Serializable {
        private static final long serialVersionUID = 1;
        int number = 7;
        String same = "of the parent";
    }

    static class Child extends Parent {
        private static final long serialVersionUID = 2;
        String same = "of the child";
        char letter = 'ß';
        boolean yes = true;
        double half = 0.5;
        Parent self = this;
    }

    public static class External implements Externalizable {
        private static final long serialVersionUID = 3;
        public void writeExternal(ObjectOutput out) throws IOException { out.writeInt(5); out.writeObject("inside"); }
        public void readExternal(ObjectInput in) throws IOException, ClassNotFoundException { in.readInt(); in.readObject(); }
    }

    /** More custom data than one block holds. */
    static class Custom implements Serializable {
        private static final long serialVersionUID = 4;
        int kept = 1;
        private void writeObject(ObjectOutputStream out) throws IOException {
            out.defaultWriteObject();
            out.write(new byte[1500]);
            out.writeObject(Integer.valueOf(9));
        }
        private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
            in.defaultReadObject();
            in.readFully(new byte[1500]);
            in.readObject();
        }
    }

    static class Handler implements InvocationHandler, Serializable {
        private static final long serialVersionUID = 5;
        public Object invoke(Object proxy, Method method, Object[] arguments) { return null; }
    }

    interface Spoken { void speak(); }

    /** Takes an object from where the grammar has its numbers: it never asks for the declared fields. */
    static class Direct implements Serializable {
        private static final long serialVersionUID = 6;
        private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException { in.readObject(); }
    }

    static class Hidden implements Serializable {
        private static final long serialVersionUID = 7;
    }

    /** Reads a stream that lies in its own block data. */
    static class Nested implements Serializable {
        private static final long serialVersionUID = 8;
        private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
            in.defaultReadObject();
            new Noting(in, ((Noting) in).names).readObject();
        }
    }

    static class Noting extends ObjectInputStream {
        final SortedSet<String> names;
        Noting(InputStream in, SortedSet<String> names) throws IOException { super(in); this.names = names; }
        @Override protected Class<?> resolveClass(ObjectStreamClass described) throws IOException, ClassNotFoundException {
            Class<?> found = super.resolveClass(described);
            note(found);
            return found;
        }
        @Override protected Class<?> resolveProxyClass(String[] interfaces) throws IOException, ClassNotFoundException {
            Class<?> found = super.resolveProxyClass(interfaces);
            for (Class<?> one : found.getInterfaces()) note(one);
            return found;
        }
        private void note(Class<?> found) {
            while (found.isArray()) found = found.getComponentType();
            if (!found.isPrimitive()) names.add(found.getName());
        }
    }

    /** The classes that this JVM resolves, one a line. */
    public static String resolved(byte[] stream) throws Exception {
        SortedSet<String> names = new TreeSet<>();
        Noting in = new Noting(new ByteArrayInputStream(stream), names);
        while (true) {
            try {
                in.readObject();
            } catch (OptionalDataException blocks) {
                in.skipBytes(blocks.length);
            } catch (EOFException end) {
                return String.join("\n", names);
            }
        }
    }

    static byte[] written(Object... values) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            for (Object value : values) out.writeObject(value);
        }
        return bytes.toByteArray();
    }

    static byte[] values() throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ObjectOutputStream out = new ObjectOutputStream(bytes);
        out.writeInt(42);
        out.writeUTF("block data");
        Object proxy = Proxy.newProxyInstance(
            Protocol.class.getClassLoader(), new Class<?>[] {Spoken.class, Runnable.class}, new Handler());
        int[] twice = {1, -2, 3};
        Object[] values = {
            null, "plain", "ü \0 \ud83d\ude00", new Child(), new External(), new Custom(), Colour.RED, Colour.GREEN, proxy,
            twice, twice, new byte[] {1, 2}, new char[] {'a', 'ü'}, new long[] {1L << 40}, new short[] {-1},
            new float[] {1.5f}, new double[] {2.5}, new boolean[] {true, false}, new String[][] {{"a"}, null},
            int.class, String[].class, File.class, new ArrayList<>(List.of("x", 1L)), new Date(0)};
        for (Object value : values) out.writeObject(value);
        out.reset();
        out.writeObject("after the reset");
        out.close();
        return bytes.toByteArray();
    }

    /** A Direct whose descriptor claims long fields; in their bytes lies an object of Hidden. */
    static byte[] hidden() throws IOException {
        byte[] object = Arrays.copyOfRange(written(new Hidden()), 4, written(new Hidden()).length);
        int count = (object.length + 7) / 8;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(0xACED0005);
        out.writeByte(0x73);
        out.writeByte(0x72);
        out.writeUTF(Direct.class.getName());
        out.writeLong(6);
        out.writeByte(0x02);
        out.writeShort(count);
        for (int index = 0; index < count; index++) { out.writeByte('J'); out.writeUTF("field" + index); }
        out.writeByte(0x78);
        out.writeByte(0x70);
        out.write(object);
        // What is left of the longs are nulls to the JVM.
        for (int index = object.length; index < 8 * count; index++) out.writeByte(0x70);
        return bytes.toByteArray();
    }

    /** A Nested whose block data, cut after every byte, holds a stream with a Hidden. */
    static byte[] nestedInBlocks() throws IOException {
        byte[] plain = written(new Nested());
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        int flags = new String(plain, "ISO-8859-1").indexOf(Nested.class.getName()) + Nested.class.getName().length() + 8;
        plain[flags] |= 0x01;
        out.write(plain);
        for (byte one : written(new Hidden())) { out.writeByte(0x77); out.writeByte(1); out.writeByte(one); }
        out.writeByte(0x78);
        return bytes.toByteArray();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, byte[]> streams = new TreeMap<>();
        streams.put("values.bin", values());
        streams.put("hidden_in_numbers.bin", hidden());
        streams.put("nested_in_blocks.bin", nestedInBlocks());
        streams.put("nested_in_byte_array.bin", written((Object) written(new Hidden())));
        for (Map.Entry<String, byte[]> one : streams.entrySet()) {
            try (FileOutputStream file = new FileOutputStream(new File(arguments[0], one.getKey()))) {
                file.write(one.getValue());
            }
            System.out.println(one.getKey() + "\t" + resolved(one.getValue()).replace('\n', '\t'));
        }
    }
}
