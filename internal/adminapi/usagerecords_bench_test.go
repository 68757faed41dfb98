package adminapi_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/usage"
)

// exportedUses is a third of the number of records that BenchmarkUsageExport exports.
const exportedUses = 333_334

// BenchmarkUsageExport exports a million usage records over loopback, with the client in the same process. The bar is 5 s for
// all of them (plans.md, section 10). It reports the CPU of both.
func BenchmarkUsageExport(b *testing.B) {
	s := start(b)
	hour := s.clock.Now().Truncate(time.Hour).Unix()
	var uses []*usage.Use
	gateway, route := id.NewFast(), id.NewFast()
	for n := range exportedUses {
		u := &usage.Use{Identity: usage.Identity{Gateway: gateway, Route: route, From: uint32(hour), Until: uint32(hour + 3600)}, Texts: usage.Texts{ExternalID: "customer-42", Plan: "pro", Prefix: "kg_abcdef"}}
		binary.BigEndian.PutUint32(u.Owner[12:], uint32(n/4))
		binary.BigEndian.PutUint32(u.Key[12:], uint32(n))
		for _, meter := range []string{usage.BytesIn, usage.BytesOut, usage.Requests} {
			u.Amounts = append(u.Amounts, usage.Amount{Meter: meter, Units: int64(n) + 1, Requests: 1, Sequence: 1})
		}
		uses = append(uses, u)
	}
	if _, err := s.db.CloseUsage(b.Context(), &usage.Closing{AccountID: s.operator(), Start: hour, Made: usage.Encode(uses)}, s.clock.Now()); err != nil {
		b.Fatal(err)
	}
	c := must(client.New(client.Config{URL: s.http.URL, Key: s.admin}))(b)
	for _, format := range []string{client.FormatJSONL, client.FormatCSV, client.FormatCloudEvents} {
		b.Run(format, func(b *testing.B) {
			before := proctest.CPUTime(b)
			for b.Loop() {
				body, _, err := c.OpenUsageExport(b.Context(), format, client.UsageFilter{}, "")
				if err != nil {
					b.Fatal(err)
				}
				lines, buffer := 0, make([]byte, 64<<10)
				for {
					n, err := body.Read(buffer)
					lines += bytes.Count(buffer[:n], []byte("\n"))
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				_ = body.Close()
				if lines < 3*exportedUses {
					b.Fatalf("got %d lines, want %d", lines, 3*exportedUses)
				}
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N)/1e9, "cpu-s/million")
		})
	}
}
