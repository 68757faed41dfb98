package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/audit"
)

// Guarantee: a value of up to 4 KiB of JSON is kept whole. For a larger value, its length is kept and the
// SHA-256 of its JSON with sorted keys and without white space. Encoding and decoding again changes nothing.
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
