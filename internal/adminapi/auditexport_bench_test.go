package adminapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/accesslog"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/id"
)

// exportedRecords is the size of the audit log that BenchmarkExport exports.
const exportedRecords = 500_000

// BenchmarkExport exports the audit log over loopback, with the client in the same process, and
// reports records a second. The bar is 200,000 on two cores.
func BenchmarkExport(b *testing.B) {
	s := start(b)
	w := must(auditwriter.New(auditwriter.Config{Store: s.db, Keeper: s.db, OperatorID: s.operator(), Now: s.clock.Now}))(b)
	account, _ := id.Parse(id.Account, s.operator())
	for from := 0; from < exportedRecords; from += 10_000 {
		batch := make([]accesslog.Entry, 10_000)
		for i := range batch {
			e, n := &batch[i], from+i
			at := s.clock.Now().Add(time.Duration(i) * 500 * time.Microsecond)
			e.Account, e.Start, e.Request, e.Authenticated, e.Method = account, at.UnixMicro(), id.NewFastAt(at.UnixMilli()), true, accesslog.GET
			e.Key, e.Gateway = [16]byte{6: 0x70, 8: 0x80, 14: byte(n % 4), 15: byte(n % 250)}, [16]byte{6: 0x70, 8: 0x80, 15: byte(n % 4)}
			e.Client = netip.AddrFrom4([4]byte{192, 0, byte(n % 6), byte(n)}).As16()
			e.Path = fmt.Sprintf("/v1/orders/%d", n*7919%10_000_000)
			copy(e.Prefix[:], "kg_abcdef")
		}
		w.Take(batch)
		s.clock.move(5 * time.Second)
		if err := w.Seal(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	c := must(client.New(client.Config{URL: s.http.URL, Key: s.admin}))(b)
	for _, format := range []string{client.FormatJSONL, client.FormatCSV} {
		b.Run(format, func(b *testing.B) {
			for b.Loop() {
				body := must(c.OpenAuditExport(b.Context(), format, client.AuditFilter{}))(b)
				lines := &lineCounter{}
				if _, err := io.CopyBuffer(lines, body, make([]byte, 256<<10)); err != nil || lines.n < exportedRecords {
					b.Fatalf("%d lines, error %v", lines.n, err)
				}
				_ = body.Close()
				s.clock.move(time.Minute)
			}
			b.ReportMetric(float64(b.N)*exportedRecords/b.Elapsed().Seconds(), "records/s")
		})
	}
	b.Run("iterator", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range c.ExportAuditLog(b.Context(), client.AuditFilter{}) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			s.clock.move(time.Minute)
		}
		b.ReportMetric(float64(b.N)*exportedRecords/b.Elapsed().Seconds(), "records/s")
	})
}

// lineCounter counts lines.
type lineCounter struct{ n int }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.n += bytes.Count(p, []byte("\n"))
	return len(p), nil
}
