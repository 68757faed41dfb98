package rows

import (
	"bytes"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
)

// Guarantee: a row that cannot be read changes nothing for the rows after it, which may have the same rate as
// the row before.
func TestKeyAfterADamagedRow(t *testing.T) {
	row := func(id, rate string) KeyRow {
		return KeyRow{ID: id, Account: "acct_1", Digest: bytes.Repeat([]byte{1}, len(apikey.Digest{})), Rate: rate}
	}
	var d KeyDecoder
	good, err := d.Decode(row("key_1", "100/min"))
	if err != nil {
		t.Fatal(err)
	}
	want := good.RateLimit
	if _, err := d.Decode(row("key_2", "many")); err == nil {
		t.Fatal("a row with the rate \"many\" was read")
	}
	after, err := d.Decode(row("key_3", "100/min"))
	if err != nil {
		t.Fatal(err)
	}
	if after.RateLimit != want {
		t.Errorf("after a damaged row, a key has the limit %v, want %v", after.RateLimit, want)
	}
}
