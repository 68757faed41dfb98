package health

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
)

// serveVariable makes this binary a process with targets: see TestServeTargets.
const serveVariable = "KEYGATE_BENCH_TARGETS"

// TestServeTargets is the process with the targets of BenchmarkTenThousandTargets. It writes their addresses, and ends with its input.
func TestServeTargets(t *testing.T) {
	if os.Getenv(serveVariable) == "" {
		t.Skip("a part of BenchmarkTenThousandTargets")
	}
	const response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	for range 10_000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(l.Addr())
		go func() {
			b := make([]byte, 512)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(b)
				_, _ = io.WriteString(c, response)
				_ = c.Close()
			}
		}()
	}
	fmt.Println("end")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0) // the goroutines are never to end
}

// startTargets returns the addresses of targets in a process of their own.
func startTargets(b *testing.B) (addresses []string) {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeTargets$", "-test.timeout=1h")
	cmd.Env = append(os.Environ(), serveVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	for {
		var line string
		if _, err := fmt.Fscanln(out, &line); err != nil {
			b.Fatal(err)
		}
		if line == "end" {
			return addresses
		}
		if strings.HasPrefix(line, "127.0.0.1:") {
			addresses = append(addresses, line)
		}
	}
}

// BenchmarkTenThousandTargets is 1,000 gateways with 10 targets each, plain HTTP checks each 10 s, after all were checked once: the
// processor time of a check, the part of a core that 1,000 a second take, and the memory that the checks have added
// (targets.md, section 10). Run it with -benchtime=20000x or so: a second has 1,000 checks.
func BenchmarkTenThousandTargets(b *testing.B) {
	addresses := startTargets(b)
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	before := resident()
	fleet := balance.NewFleet(nil)
	changed := service.NewSignal()
	fleet.OnChecks(changed.Notify)
	ok := statuses(b, "200-399")
	for i := range 1000 {
		cfg := &balance.Config{Check: balance.Check{ID: fmt.Sprint(i), Unhealthy: 2, Healthy: 2, Use: &snapshot.Check{
			Path: "/healthz", Interval: 10 * time.Second, Timeout: 2 * time.Second, Statuses: ok,
		}}}
		for _, address := range addresses[i*10 : i*10+10] {
			cfg.Targets = append(cfg.Targets, targetOf(b, "http://"+address))
		}
		fleet.Upstream(now(), balance.Name{Account: fmt.Sprint("account ", i/10), Gateway: fmt.Sprint("gateway ", i), Upstream: "default"}, cfg)
	}
	without := resident() - before
	checks, err := New(Config{Healths: fleet.Healths, Changed: changed, Pools: newPools(b), Now: now, Version: "1"})
	if err != nil {
		b.Fatal(err)
	}
	if err := checks.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = checks.Stop(b.Context()) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	until := func(n uint64) {
		for checks.done.Load() < n {
			<-tick.C
		}
	}
	until(uint64(len(addresses)))
	began, used, done := time.Now(), processorTime(), checks.done.Load()
	until(done + uint64(b.N))
	n, took := float64(checks.done.Load()-done), time.Since(began)
	cpu := float64(processorTime() - used)
	b.ReportMetric(cpu/n/1e3, "µs-CPU/check")
	b.ReportMetric(cpu/float64(took)*100, "%core")
	b.ReportMetric(n/took.Seconds(), "checks/s")
	b.ReportMetric(float64(resident()-before-without)/(1<<20), "MB")
	b.ReportMetric(float64(without)/(1<<20), "MB-fleet")
	healthy := 0
	for h, p := range checks.probes {
		if s := h.Last(); s.Known && s.Good && p != nil {
			healthy++
		}
	}
	if healthy != len(addresses) {
		b.Errorf("%d of %d targets are healthy", healthy, len(addresses))
	}
}

// resident returns the bytes of memory that the process has from the system and uses, or has used since the last collection.
func resident() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse + m.MSpanInuse + m.OtherSys + m.GCSys)
}
