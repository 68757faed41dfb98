package hpack

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// fromHex returns the bytes of hexadecimal text with spaces.
func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// noLimits are limits that no block of a test exceeds.
var noLimits = Limits{Size: 1 << 30, Fields: 1 << 30}

// decodeBlock returns the fields of a block as text. Those that are never indexed end in
// a star.
func decodeBlock(d *Decoder, block []byte) (fields []string, err error) {
	var scratch Scratch
	var f Field
	d.Start(block, &scratch)
	for d.Next(&f) {
		s := string(f.Name) + ": " + string(f.Value)
		if f.NeverIndexed {
			s += "*"
		}
		fields = append(fields, s)
	}
	return fields, d.Finish()
}

// contents returns the entries of a dynamic table, the newest first.
func (t *table) contents() (entries []string) {
	for i := range t.n {
		e := t.at(i)
		entries = append(entries, string(t.nameOf(e))+": "+string(t.valueOf(e)))
	}
	return entries
}

// vector is a header block of RFC 7541, appendix C: its fields, and the dynamic table
// after it.
type vector struct {
	block  string
	fields []string
	table  []string
	size   int
}

var (
	requests = [3][]string{
		{":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"},
		{":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"},
		{":method: GET", ":scheme: https", ":path: /index.html", ":authority: www.example.com", "custom-key: custom-value"},
	}
	requestTables = [3][]string{
		{":authority: www.example.com"},
		{"cache-control: no-cache", ":authority: www.example.com"},
		{"custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"},
	}
	responses = [3][]string{
		{":status: 302", "cache-control: private", "date: Mon, 21 Oct 2013 20:13:21 GMT", "location: https://www.example.com"},
		{":status: 307", "cache-control: private", "date: Mon, 21 Oct 2013 20:13:21 GMT", "location: https://www.example.com"},
		{":status: 200", "cache-control: private", "date: Mon, 21 Oct 2013 20:13:22 GMT", "location: https://www.example.com",
			"content-encoding: gzip", "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"},
	}
	responseTables = [3][]string{
		{"location: https://www.example.com", "date: Mon, 21 Oct 2013 20:13:21 GMT", "cache-control: private", ":status: 302"},
		{":status: 307", "location: https://www.example.com", "date: Mon, 21 Oct 2013 20:13:21 GMT", "cache-control: private"},
		{"set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1", "content-encoding: gzip", "date: Mon, 21 Oct 2013 20:13:22 GMT"},
	}
)

var series = []struct {
	name      string
	tableSize int
	vectors   []vector
}{
	{"C.2.1", TableSize, []vector{
		{"400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", []string{"custom-key: custom-header"}, []string{"custom-key: custom-header"}, 55},
	}},
	{"C.2.2", TableSize, []vector{{"040c 2f73 616d 706c 652f 7061 7468", []string{":path: /sample/path"}, nil, 0}}},
	{"C.2.3", TableSize, []vector{{"1008 7061 7373 776f 7264 0673 6563 7265 74", []string{"password: secret*"}, nil, 0}}},
	{"C.2.4", TableSize, []vector{{"82", []string{":method: GET"}, nil, 0}}},
	{"C.3", TableSize, []vector{
		{"8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", requests[0], requestTables[0], 57},
		{"8286 84be 5808 6e6f 2d63 6163 6865", requests[1], requestTables[1], 110},
		{"8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", requests[2], requestTables[2], 164},
	}},
	{"C.4", TableSize, []vector{
		{"8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", requests[0], requestTables[0], 57},
		{"8286 84be 5886 a8eb 1064 9cbf", requests[1], requestTables[1], 110},
		{"8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", requests[2], requestTables[2], 164},
	}},
	{"C.5", 256, []vector{
		{"4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
			responses[0], responseTables[0], 222},
		{"4803 3330 37c1 c0bf", responses[1], responseTables[1], 222},
		{"88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
			responses[2], responseTables[2], 215},
	}},
	{"C.6", 256, []vector{
		{"4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
			responses[0], responseTables[0], 222},
		{"4883 640e ffc1 c0bf", responses[1], responseTables[1], 222},
		{"88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
			responses[2], responseTables[2], 215},
	}},
}

// Guarantee: the header blocks of RFC 7541, appendix C are decoded as the RFC says, and leave the
// dynamic table that it says.
func TestDecodeExamples(t *testing.T) {
	for _, s := range series {
		d := NewDecoder(noLimits, nil)
		d.table.setMax(s.tableSize)
		for i, v := range s.vectors {
			fields, err := decodeBlock(d, fromHex(t, v.block))
			if err != nil || !slices.Equal(fields, v.fields) {
				t.Errorf("%s, block %d: got %q, error %v; want %q", s.name, i+1, fields, err, v.fields)
			}
			if got := d.table.contents(); !slices.Equal(got, v.table) || d.table.size != v.size {
				t.Errorf("%s, table after block %d: got %q of size %d, want %q of size %d", s.name, i+1, got, d.table.size, v.table, v.size)
			}
		}
	}
}

// Guarantee: integers are coded as in RFC 7541, C.1; an integer that is too long or incomplete is
// an error.
func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		value  int
		prefix uint
		code   string
	}{
		{10, 5, "0a"}, {1337, 5, "1f 9a 0a"}, {42, 8, "2a"}, {0, 4, "00"}, {15, 4, "0f 00"}, {1<<28 - 1 + 127, 7, "7f ff ff ff 7f"},
	} {
		code := fromHex(t, c.code)
		if got := appendInteger(nil, 0, c.prefix, c.value); !bytes.Equal(got, code) {
			t.Errorf("appendInteger(%d) with a prefix of %d bits: got %x, want %x", c.value, c.prefix, got, code)
		}
		value, length, err := readInteger(append(code, 1), c.prefix)
		if value != c.value || length != len(code) || err != nil {
			t.Errorf("readInteger(%x) with a prefix of %d bits: got %d of %d bytes, error %v; want %d", code, c.prefix, value, length, err, c.value)
		}
	}
	for code, want := range map[string]error{
		"": ErrTruncated, "1f": ErrTruncated, "1f 80 80 80": ErrTruncated,
		"1f 80 80 80 80": ErrInteger, "1f 80 80 80 80 00": ErrInteger, "1f ff ff ff ff ff ff ff ff ff 7f": ErrInteger,
	} {
		if _, _, err := readInteger(fromHex(t, code), 5); err != want { //nolint:errorlint // exactly this one
			t.Errorf("readInteger(%s): got error %v, want %v", code, err, want)
		}
	}
}
