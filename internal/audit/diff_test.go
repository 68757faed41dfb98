package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: a value of up to 4 KiB of JSON is kept whole, and of a larger one its length and the SHA-256 of its
// JSON with sorted keys and without white space. Encoding and decoding again changes nothing.
func TestDiffKeepsFourKiBAValue(t *testing.T) {
	type ordered struct {
		Z string `json:"z"`
		A string `json:"a"`
	}
	fits, tooLong := strings.Repeat("x", audit.MaxDiffValue-2), strings.Repeat("<", audit.MaxDiffValue-1)
	text := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return fmt.Sprintf(`{"bytes":%d,"omitted":true,"sha256":%q}`, len(s), hex.EncodeToString(sum[:]))
	}
	diff := audit.Diff{
		"fits": {nil, fits}, "long": {tooLong, json.Number("12345678901234567890")},
		"object": {ordered{Z: tooLong, A: "é"}, nil},
	}
	want := fmt.Sprintf(`{"fits":[null,%q],"long":[%s,12345678901234567890],"object":[%s,null]}`,
		fits, text(`"`+tooLong+`"`), text(`{"a":"é","z":"`+tooLong+`"}`))
	for range 2 {
		b, err := audit.EncodeDiff(diff)
		if err != nil || string(b) != want {
			t.Fatalf("got %.200s (%d bytes), error %v, want %d bytes", b, len(b), err, len(want))
		}
		if diff, err = audit.DecodeDiff(b); err != nil {
			t.Fatal(err)
		}
	}
}

// Guarantee: a block of an earlier version, which has diffs of any size, can be read and verified, and what is read
// of it is small.
func TestOldBlockWithLargeDiffs(t *testing.T) {
	c := newCodec(t)
	var table audit.Table
	value := strings.Repeat("0123456789abcdef", 9<<16)
	const n = 2
	for i := range n {
		r := audit.Record{Time: time.UnixMicro(int64(i)), Kind: audit.Management, Outcome: audit.Success, Action: audit.GatewayUpdate, RequestID: id.New(id.Request)}
		if err := table.AddOld(&r, `{"cors":["`+value+`",null]}`); err != nil {
			t.Fatal(err)
		}
	}
	content, err := table.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	got := records(t, c, content)
	if len(got) != n {
		t.Fatalf("got %d records, want %d", len(got), n)
	}
	for _, r := range got {
		if o, ok := r.Diff["cors"][0].(audit.Omitted); !ok || o.Bytes != len(value)+2 {
			t.Errorf("got %.200v, want an omitted value of %d bytes", r.Diff["cors"][0], len(value)+2)
		}
	}
}
