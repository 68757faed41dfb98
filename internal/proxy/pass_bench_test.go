package proxy_test

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/proxy"
)

// ways are the ways to pass bytes between two sockets.
var ways = map[string]func(to, from *net.TCPConn) (int64, error){
	"Pass":    func(to, from *net.TCPConn) (int64, error) { return proxy.Pass(to, from) },
	"io.Copy": func(to, from *net.TCPConn) (int64, error) { return io.Copy(to, from) },
}

// BenchmarkPassBulk measures the processor time of the whole process, sender and receiver
// included, for each MiB that passes.
func BenchmarkPassBulk(b *testing.B) {
	for name, pass := range ways {
		b.Run(name, func(b *testing.B) {
			in, from := socketPair(b)
			to, out := socketPair(b)
			go func() { _, _ = pass(to, from) }()
			chunk := make([]byte, 1<<20)
			b.SetBytes(int64(len(chunk)))
			before := proctest.CPUTime(b)
			go func() {
				for range b.N {
					_, _ = in.Write(chunk)
				}
			}()
			rest := make([]byte, 1<<20)
			for range b.N {
				if _, err := io.ReadFull(out, rest); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((proctest.CPUTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/MiB")
		})
	}
}

// BenchmarkPassIdle measures the memory of an idle direction, with its goroutine.
func BenchmarkPassIdle(b *testing.B) {
	for name, pass := range ways {
		b.Run(name, func(b *testing.B) {
			const idle = 500
			var pairs [idle][3]*net.TCPConn
			var outs [idle]*net.TCPConn
			for i := range pairs {
				pairs[i][0], pairs[i][1] = socketPair(b)
				pairs[i][2], outs[i] = socketPair(b)
			}
			inUse := func() int64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc + m.StackInuse)
			}
			for range b.N {
				before := inUse()
				for i := range pairs {
					go func() { _, _ = pass(pairs[i][2], pairs[i][1]) }()
					_, _ = pairs[i][0].Write([]byte("x"))
					_, _ = outs[i].Read(make([]byte, 1))
				}
				b.ReportMetric(float64(inUse()-before)/idle, "B/direction")
			}
		})
	}
}
