package proctest

import (
	"net"
	"testing"
)

// BenchmarkExchanges sends a request to addr b.N times, over 16 connections for each processor, and reports the processor time
// for each as cpu-ns/op. Each response must arrive at once, with the status 200 and at least the given number of bytes. It
// allocates nothing for each request.
func BenchmarkExchanges(b *testing.B, addr string, request []byte, size int) {
	b.Helper()
	b.ReportAllocs()
	b.SetParallelism(16)
	before := CPUTime(b)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		buf := make([]byte, 4096)
		for pb.Next() {
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
			n, err := conn.Read(buf)
			if err != nil || n < size || string(buf[9:12]) != "200" {
				b.Errorf("got response %q, error %v; want a whole 200", buf[:n], err)
				return
			}
		}
	})
	b.ReportMetric(float64(CPUTime(b)-before)/float64(b.N), "cpu-ns/op")
}
