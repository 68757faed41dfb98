package audit

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
)

// plainRecord is a record as the list of the management API has it, if it has no more fields than
// an authentication.
func plainRecord(dst []byte, r *Record) ([]byte, error) {
	var b strings.Builder
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Time      any     `json:"time"`
		Kind      Kind    `json:"kind"`
		Outcome   Outcome `json:"outcome"`
		KeyPrefix *string `json:"key_prefix"`
		KeyID     *string `json:"key_id"`
		GatewayID *string `json:"gateway_id"`

		Credential *string `json:"credential"`
		IssuerID   *string `json:"issuer_id"`
		Subject    *string `json:"subject"`

		Method    string `json:"method"`
		Path      string `json:"path"`
		ClientIP  string `json:"client_ip"`
		RequestID string `json:"request_id"`
		Count     int64  `json:"count"`
	}{r.Time, r.Kind, r.Outcome, orNull(r.KeyPrefix), orNull(r.KeyID), orNull(r.GatewayID), orNull(r.Credential()), orNull(r.IssuerID), orNull(r.Subject), r.Method, r.Path, r.ClientIP, r.RequestID, max(1, r.Count)})
	return append(dst, b.String()...), err
}

func anyEvent() *rapid.Generator[Event] {
	return rapid.Custom(func(t *rapid.T) Event {
		e := Event{
			Time: rapid.Int64Range(1_800_000_000_000_000, 1_800_000_003_000_000).Draw(t, "time"), Request: id.NewFastAt(1_800_000_000_000),
			Outcome: rapid.SampledFrom([]Outcome{Success, KeyInvalid, KeyExpired, ScopeInsufficient}).Draw(t, "outcome"),
			Method:  rapid.SampledFrom([]string{"GET", "-", "", "+x", "a\"b"}).Draw(t, "method"),
			Path:    rapid.String().Draw(t, "path"),
		}
		if rapid.Bool().Draw(t, "has a key") {
			e.Key, e.Gateway = [16]byte{6: 0x70, 8: 0x80, 15: rapid.Byte().Draw(t, "key")}, [16]byte{6: 0x70, 8: 0x80, 15: 3}
			copy(e.Prefix[:], "kg_abcdef")
		}
		if e.Key == [16]byte{} && rapid.Bool().Draw(t, "has a token") {
			e.Token, e.IssuerID = true, rapid.SampledFrom([]string{"", "iss_01jz8y5c3te9b8r2m6q4v7x0dd"}).Draw(t, "issuer")
			e.Subject = rapid.OneOf(rapid.SampledFrom([]string{"", "ada", "=1+1"}), rapid.String()).Draw(t, "subject")
		}
		if rapid.Bool().Draw(t, "has a client") {
			e.Client = netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "client")}).As16()
		}
		return e
	})
}

// Guarantee: the lines that are encoded from the entries of a block equal the lines that are
// encoded from each record, in both formats, for records of every sort.
func TestLinesOfBlocksAreThoseOfRecords(t *testing.T) {
	c, err := NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		for _, e := range rapid.SliceOfN(anyEvent(), 1, 30).Draw(t, "events") {
			if rapid.IntRange(0, 3).Draw(t, "counted") == 0 {
				table.AddCounted(&e)
			} else {
				table.AddEvent(&e)
			}
		}
		table.Sort()
		content, err := table.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Open(content)
		if err == nil {
			err = v.All()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []LineFormat{JSONL, CSV} {
			fast, slow := NewLineEncoder(format, plainRecord), NewLineEncoder(format, plainRecord)
			var indexes []int
			for i := range v.Len() {
				indexes = append(indexes, i)
				r, err := v.Record(i)
				if err == nil {
					err = slow.append(&r)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := fast.run(&run{view: v, indexes: indexes}, len(indexes), nil); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(fast.dst, slow.dst) {
				t.Fatalf("got\n%s\nwant\n%s", fast.dst, slow.dst)
			}
			if format == CSV {
				checkRows(t, string(fast.dst), v)
			}
		}
	})
}

// checkRows reads CSV with another implementation.
func checkRows(t *rapid.T, text string, v *View) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != v.Len() {
		t.Fatalf("%d rows for %d records, error %v", len(rows), v.Len(), err)
	}
	for i, row := range rows {
		r, err := v.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		cell := func(text string) string { return strings.ReplaceAll(PlainCell(text), "\r\n", "\n") } // the reader does that
		if len(row) != 18 || row[17] != cell(r.Subject) || row[14] != strconv.FormatInt(max(1, r.Count), 10) || row[7] != cell(r.Path) || row[9] != r.RequestID {
			t.Fatalf("got %q, want the path and the subject of %+v", row, r)
		}
	}
}

// BenchmarkLines measures decoding a block of mixed traffic and encoding its records as lines. It
// should take at most 1 µs for a record.
func BenchmarkLines(b *testing.B) {
	c, err := NewCodec()
	if err != nil {
		b.Fatal(err)
	}
	var table Table
	for i := range MaxRecords {
		e := Event{Time: 1_800_000_000_000_000 + int64(i)*451, Request: id.NewFastAt(1_800_000_000_000), Outcome: Success, Method: "GET", Path: fmt.Sprintf("/v1/orders/%d", i*7919)}
		e.Key, e.Gateway = [16]byte{6: 0x70, 8: 0x80, 14: byte(i % 7), 15: byte(i)}, [16]byte{6: 0x70, 8: 0x80, 15: byte(i % 4)}
		e.Client = netip.AddrFrom4([4]byte{192, 0, byte(i % 5), byte(i)}).As16()
		copy(e.Prefix[:], "kg_abcdef")
		table.AddEvent(&e)
	}
	table.Sort()
	content, err := table.Encode(c)
	if err != nil {
		b.Fatal(err)
	}
	for _, format := range []LineFormat{JSONL, CSV} {
		b.Run(string(format), func(b *testing.B) {
			step := &ScanStep{scan: &Scan{codec: c, query: newQuery(Filter{})}, blocks: slices.Repeat([]*Block{{Content: content}}, 1)}
			to, size := NewLineEncoder(format, plainRecord), 0
			b.ReportAllocs()
			start := proctest.CPUTime(b)
			for b.Loop() {
				size = 0
				err := step.Encode(to, func(lines []byte) error {
					size += len(lines)
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-start)/float64(b.N)/MaxRecords, "cpu-ns/record")
			b.ReportMetric(float64(size)/MaxRecords, "bytes/record")
		})
	}
}

// Guarantee: no spreadsheet finds a formula in a cell that callers have chosen, whether it divides lines by commas or, as its
// locale may say, by semicolons or tabs.
func TestCellsHoldNoFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.RuneFrom([]rune("=+-@;\t\r\n\"', a")), 0, 12, -1).Draw(t, "value")
		line := string(appendCell([]byte("first,"), s))
		rows, err := csv.NewReader(strings.NewReader(line)).ReadAll()
		if err != nil || len(rows) != 1 || len(rows[0]) != 2 {
			t.Fatalf("got %q, %v of %q", rows, err, line)
		}
		cells := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(";\t\r\n", r) })
		for i, cell := range append(cells, rows[0][1]) {
			if cell = strings.TrimLeft(cell, " \""); i > 0 && cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) && (i < len(cells) || cell == rows[0][1]) {
				t.Fatalf("%q has a formula: %q", line, cell)
			}
		}
	})
	for in, want := range map[string]string{
		"": "", "a": "a", "=1": "'=1", "a;b": "a;b", "a;=1": "a;'=1", "a; \"=1": "a; \"'=1", "a\t-1": "a\t'-1", "\t": "'\t", "a;b=c;1-2": "a;b=c;1-2",
	} {
		if got := PlainCell(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
