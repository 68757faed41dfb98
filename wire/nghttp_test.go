package wire

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// writeUpload writes a body of n bytes to a file.
func writeUpload(t *testing.T, n int) (file string, body []byte) {
	t.Helper()
	file, body = filepath.Join(t.TempDir(), "upload"), longBody[:n]
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, body
}

// checksum returns the field x-checksum for a body.
func checksum(body []byte) string { return fmt.Sprintf("x-checksum: %08x", crc32.ChecksumIEEE(body)) }

// bearer returns the field with a key.
func bearer(key string) string { return "authorization: Bearer " + key }

// run runs a program that make deps installs and returns its standard output. The program must
// succeed and print nothing else.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaittest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s %q: got error %v and output\n%s%s", name, args, err, out, stderr.Bytes())
	}
	return string(out)
}

// nghttp requests a path with nghttp.
func nghttp(t *testing.T, s *testServer, key, path string, args ...string) string {
	t.Helper()
	return run(t, "nghttp", slices.Concat([]string{"-y", "-t", "120", "-H", bearer(key)}, args, []string{s.url(path)})...)
}

// Guarantee: nghttp gets the whole response of the service, and the service gets nghttp's whole
// request, whatever frames nghttp uses: padding, small windows, heads in parts, trailers.
func TestNghttp(t *testing.T) {
	t.Parallel()
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		file, body := writeUpload(t, 1<<20)
		get, post := up.reported("GET", nil, ""), up.reported("POST", body, "")
		for _, c := range []struct {
			name, path string
			args       []string
			want       string
		}{
			{"GET", "/x", nil, get},
			{"HEAD", "/x", []string{"-H", ":method: HEAD"}, ""},
			{"upload", "/x", []string{"-d", file}, post},
			{"upload without length", "/x", []string{"-d", file, "--no-content-length"}, post},
			{"upload with padding", "/x", []string{"-d", file, "-b", "200"}, post},
			{"upload with a trailer", "/x", []string{"-d", file, "--no-content-length", "-H", "trailer: x-sum", "--trailer", "x-sum: 7"}, up.reported("POST", body, "7")},
			{"upload that the service does not read", "/early", []string{"-d", file}, "early\n"},
			{"long response", "/long", nil, string(longBody)},
			{"long response in small windows", "/long", []string{"-w", "12", "-W", "14"}, string(longBody)},
			{"head in CONTINUATION", "/x", []string{"--continuation"}, get},
			{"without priorities", "/x", []string{"--no-dep", "--no-rfc7540-pri"}, get},
		} {
			t.Run(c.name, func(t *testing.T) {
				if got := nghttp(t, s, s.key, c.path, c.args...); got != c.want {
					t.Errorf("got %d bytes, which begin with %.300q; want %d, %.300q", len(got), got, len(c.want), c.want)
				}
			})
		}
	})
}

// statistics matches a row of nghttp's table of requests: status and size.
var statistics = regexp.MustCompile(`(?m)^ *\d+ .* ([1-9]\d\d) +(\w+) /\w+$`)

// Guarantee: nghttp gets the status and the whole body of each of many requests on one
// connection.
func TestNghttpManyRequests(t *testing.T) {
	t.Parallel()
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		file, body := writeUpload(t, 300_000)
		for _, c := range []struct {
			name, path, key string
			n               int
			args            []string
			want            string
		}{
			{"50 at a time", "/x", s.key, 200, []string{"-M", "50"}, fmt.Sprint("200 ", len(up.reported("GET", nil, "")))},
			{"all at once", "/x", s.key, 120, []string{"-M", "1000"}, fmt.Sprint("200 ", len(up.reported("GET", nil, "")))},
			{"without a table of HPACK", "/x", s.key, 50, []string{"-c", "4096", "-c", "0", "--encoder-header-table-size", "0"}, fmt.Sprint("200 ", len(up.reported("GET", nil, "")))},
			{"uploads", "/x", s.key, 20, []string{"-d", file, "-b", "20", "-H", checksum(body)}, fmt.Sprint("200 ", len(up.reported("POST", body, "")))},
			{"uploads that the service does not read", "/early", s.key, 20, []string{"-d", file}, "403 6"},
			{"refusals", "/x", "wrong", 50, nil, "401 "},
			{"refusals of uploads", "/x", "wrong", 20, []string{"-d", file}, "401 "},
		} {
			t.Run(c.name, func(t *testing.T) {
				out := nghttp(t, s, c.key, c.path, append(c.args, "-n", "-s", "-m", fmt.Sprint(c.n))...)
				rows := statistics.FindAllStringSubmatch(out, -1)
				wrong := slices.ContainsFunc(rows, func(row []string) bool { return !strings.HasPrefix(row[1]+" "+row[2], c.want) })
				if len(rows) != c.n || wrong {
					t.Errorf("got %d responses, want %d with %q:\n%s", len(rows), c.n, c.want, out)
				}
			})
		}
	})
}

// Guarantee: nghttp gets the trailers of the service, which end the response.
func TestNghttpTrailers(t *testing.T) {
	t.Parallel()
	end := regexp.MustCompile(`recv \(stream_id=\d+\) x-length: 100000\n.*recv HEADERS frame <[^>]*>\n *; END_STREAM`)
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		file, _ := writeUpload(t, 100_000)
		if out := nghttp(t, s, s.key, "/x", "-v", "-n", "-d", file, "-H", "te: trailers"); !end.MatchString(out) {
			t.Errorf("got\n%s\nwant the trailer x-length: 100000 at the end", out)
		}
	})
}

// Guarantee: every request of h2load, with a body and without, over several connections with
// several streams each, succeeds.
func TestH2load(t *testing.T) {
	t.Parallel()
	const requests, want = "200", "requests: 200 total, 200 started, 200 done, 200 succeeded, 0 failed, 0 errored, 0 timeout\nstatus codes: 200 2xx, 0 3xx, 0 4xx, 0 5xx\n"
	http2Ways(t, func(t *testing.T, s *testServer, up *service) {
		file, body := writeUpload(t, 100_000)
		for _, c := range []struct {
			name string
			args []string
		}{
			{"GET", nil},
			{"uploads", []string{"-d", file, "-H", checksum(body)}},
			{"small windows", []string{"-w", "10", "-W", "10"}},
			{"two threads", []string{"-t", "2"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				out := run(t, "h2load", slices.Concat([]string{"-n", requests, "-c", "4", "-m", "10", "-H", bearer(s.key)}, c.args, []string{s.url("/x")})...)
				if !strings.Contains(out, want) {
					t.Errorf("h2load: got\n%s\nwant\n%s", out, want)
				}
			})
		}
	})
}
