package repository_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/repository"
)

const someCommit = "1111111111111111111111111111111111111111"

func pkt(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// capabilities is what a server with version 2 advertises.
func capabilities(lines ...string) string {
	out := pkt("# service=git-upload-pack\n") + "0000" + pkt("version 2\n")
	for _, l := range append(lines, "fetch=shallow") {
		out += pkt(l + "\n")
	}
	return out + "0000"
}

// hostile is a server over https whose responses a test writes itself.
func hostile(t testing.TB, serve http.HandlerFunc) *gitServer {
	s := &gitServer{Server: httptest.NewUnstartedServer(serve)}
	s.start(t)
	return s
}

// answers serves a discovery and the response to each request.
func answers(t testing.TB, discovery string, post http.HandlerFunc) *gitServer {
	return hostile(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(discovery))
			return
		}
		post(w, r)
	})
}

func reads(response string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(response)) }
}

// refs answers ls-refs with a commit, and other requests with post.
func refs(post http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		if strings.Contains(body.String(), "command=ls-refs") {
			_, _ = w.Write([]byte(pkt(someCommit+" refs/heads/main\n") + "0000"))
			return
		}
		post(w, r)
	}
}

// packOf returns a pack of objects, each with its type and the size that it claims.
func packOf(objects ...packObject) []byte {
	out := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("PACK"), 2), uint32(len(objects)))
	for _, o := range objects {
		size := o.size
		if size == 0 {
			size = len(o.content)
		}
		b := byte(o.kind<<4 | size&15)
		for size >>= 4; size > 0; size >>= 7 {
			out = append(out, b|0x80)
			b = byte(size & 0x7f)
		}
		out = append(append(out, b), o.base...)
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, _ = w.Write(o.content)
		_ = w.Close()
		out = append(out, z.Bytes()...)
	}
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

type packObject struct {
	kind    int
	size    int // that it claims; 0 means the right one
	base    []byte
	content []byte
}

// sent returns the response to fetch with a pack.
func sent(pack []byte) string {
	out := pkt("packfile\n")
	for len(pack) > 0 {
		n := min(len(pack), 60_000)
		out += pkt("\x01" + string(pack[:n]))
		pack = pack[n:]
	}
	return out + "0000"
}

// Guarantee: whatever a server sends that is not Git, is damaged, was not requested, or is an error
// of its own ends the call with an error that says so in one printable line without secrets.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	v2 := capabilities()
	for _, c := range []struct {
		name      string
		discovery string
		post      http.HandlerFunc
		kind      repository.Kind
		text      string
	}{
		{"a page", "<html>", nil, repository.Malformed, "does not follow Git's protocol"},
		{"nothing", "", nil, repository.Unreachable, "ended before"},
		{"a length beyond the packet", "fff5", nil, repository.Malformed, ""},
		{"a negative length", "-001", nil, repository.Malformed, ""},
		{"half a packet", "0030version", nil, repository.Unreachable, ""},
		{"SHA-256", capabilities("object-format=sha256"), nil, repository.Unsupported, "only sha1"},
		{"an error in words", pkt("ERR \x1b[2Jgo\naway s3cret-token Z2l0OnMzY3JldC10b2tlbg== \x07" + strings.Repeat("x", 500)), nil, repository.NoRepository, "the server reports: [2Jgo away *** *** xxx"},
		{"an identifier that is none", v2, reads(pkt("main refs/heads/main\n") + "0000"), repository.Malformed, ""},
		{"an identifier in capitals", v2, reads(pkt(strings.Repeat("A", 40)+" refs/heads/main\n") + "0000"), repository.Malformed, ""},
		{"no such branch", v2, reads(pkt(someCommit+" refs/heads/main2\n") + "0000"), repository.NoBranch, ""},
		{"no pack", v2, refs(reads("0000")), repository.Malformed, ""},
		{"an empty pack", v2, refs(reads(sent(nil))), repository.Malformed, "damaged pack"},
		{"a pack of nothing", v2, refs(reads(sent(packOf()))), repository.Malformed, "did not send commit"},
		{"a pack with another checksum", v2, refs(reads(sent(append(packOf(), 1)[1:]))), repository.Malformed, "damaged pack"},
		{"a pack that ends early", v2, refs(reads(sent(packOf(packObject{kind: 3, content: []byte("x")})[:20]))), repository.Malformed, "damaged pack"},
		{"another object than was asked for", v2, refs(reads(sent(packOf(packObject{kind: 1, content: []byte("tree " + someCommit + "\n")})))), repository.Malformed, "did not send"},
		{"an object that is larger than it claims", v2, refs(reads(sent(packOf(packObject{kind: 1, size: 1, content: make([]byte, 1<<20)})))), repository.Malformed, "damaged pack"},
		{"an object that claims to be huge", v2, refs(reads(sent(packOf(packObject{kind: 1, size: 3 << 30, content: []byte("x")})))), repository.TooLarge, "2 GiB"},
		{"an object of no kind", v2, refs(reads(sent(packOf(packObject{kind: 5, content: []byte("x")})))), repository.Malformed, "damaged pack"},
		{"a delta without its base", v2, refs(reads(sent(packOf(packObject{kind: 7, base: make([]byte, 20), content: []byte("x")})))), repository.Malformed, "did not send"},
		{"a delta that is based on itself", v2, refs(reads(sent(packOf(packObject{kind: 6, base: []byte{0}, content: []byte("x")})))), repository.Malformed, "damaged pack"},
		{"an error in the pack", v2, refs(reads(pkt("packfile\n") + pkt("\x03out of\x1b memory\n"))), repository.NoRepository, "the server reports: out of memory"},
		{"progress that controls the terminal", v2, refs(reads(pkt("packfile\n") + pkt("\x02\x1b[2J") + "0000")), repository.Malformed, "damaged pack"},
		{"too many objects", v2, refs(reads(sent(append([]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"), make([]byte, 20)...)))), repository.TooLarge, "too many files"},
		{"status 500", "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, repository.Unreachable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := answers(t, c.discovery, c.post)
			_, err := read(t, client(t, repository.Config{Roots: s.roots}), repository.Source{URL: s.URL + "/x.git", Credential: repository.Credential{Token: "s3cret-token"}})
			wantKind(t, err, c.kind, c.text)
			if err == nil || strings.ContainsAny(err.Error(), "\x1b\x07\n") || strings.Contains(err.Error(), "s3cret") || len(err.Error()) > 400 {
				t.Errorf("got the message %q, want one printable line without secrets", err)
			}
		})
	}
}

// Guarantee: endless responses of a server are cut off, and take little memory: references of both
// versions, lines before a pack, and a pack.
func TestEndlessResponses(t *testing.T) {
	endless := func(start, again string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			_, err := w.Write([]byte(start))
			for again := []byte(strings.Repeat(again, 1+50_000/len(again))); err == nil; {
				_, err = w.Write(again)
			}
		}
	}
	if repository.Bounds != 256<<20+32<<20 {
		t.Errorf("the bounds are %d bytes together, and the messages say 256 MiB and 32 MiB", repository.Bounds)
	}
	ref := pkt(someCommit + " refs/heads/x\n")
	piece := pkt("\x01" + strings.Repeat("x", 60_000))
	for _, c := range []struct {
		name string
		s    *gitServer
		kind repository.Kind
		text string
	}{
		{"references", answers(t, capabilities(), endless("", pkt(someCommit+" refs/heads/main2\n"))), repository.TooLarge, "32 MiB"},
		{"references of version 0", hostile(t, endless(pkt("# service=git-upload-pack\n")+"0000", ref)), repository.TooLarge, "32 MiB"},
		{"capabilities", hostile(t, endless(capabilities()[:len(capabilities())-4], pkt("x"))), repository.TooLarge, "32 MiB"},
		{"lines before the pack", answers(t, capabilities(), refs(endless("", pkt("shallow-info\n")))), repository.Malformed, ""},
		{"the pack", answers(t, capabilities(), refs(endless(pkt("packfile\n"), piece))), repository.TooLarge, "256 MiB"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		client := client(t, repository.Config{Roots: c.s.roots})
		repository.SetBounds(client, 20<<20, 2<<20, 1<<20)
		_, err := read(t, client, repository.Source{URL: c.s.URL + "/x.git"})
		runtime.ReadMemStats(&after)
		wantKind(t, err, c.kind, c.text)
		if grown := int64(after.Sys) - int64(before.Sys); grown > 16<<20 {
			t.Errorf("%s: the process took %d MiB more, want at most 16", c.name, grown>>20)
		}
	}
}

// Guarantee: an object of a few compressed bytes that would inflate to more than the memory is not
// inflated into memory, neither whole nor as a delta.
func TestPackedBombs(t *testing.T) {
	for name, delta := range map[string][]byte{
		"object": append([]byte{0x80, 0x80, 0x80, 0x02, 0x01}, 0x90, 0x01), // of 4 MiB, and a byte of it
		"delta":  append([]byte{0x80, 0x80, 0x80, 0x02, 0xff, 0xff, 0xff, 0xff, 0x0f}, 0x80),
	} {
		base := packObject{kind: 1, content: make([]byte, 4<<20)}
		if name == "delta" {
			base.content = base.content[:1000]
			delta[0], delta[1], delta = 0xe8, 0x07, append(delta[:2:2], delta[4:]...)
		}
		id := sha1.Sum(fmt.Appendf(nil, "commit %d\x00%s", len(base.content), base.content))
		pack := packOf(base, packObject{kind: 7, base: id[:], content: delta})
		s := answers(t, capabilities(), refs(reads(sent(pack))))
		c := client(t, repository.Config{Roots: s.roots})
		repository.SetBounds(c, 20<<20, 1<<20, 1<<20)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(t, c, repository.Source{URL: s.URL + "/x.git"})
		runtime.ReadMemStats(&after)
		wantKind(t, err, repository.Malformed, "only in a form that is too large")
		if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 3<<20 {
			t.Errorf("%s: %d KiB were allocated, want at most 3 MiB", name, grown>>10)
		}
	}
}

// chainOf returns a pack of a commit of size zeros and n deltas, each of which copies the object before it.
func chainOf(size, n int) []byte {
	copies := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(size)), uint64(size))
	for at := 0; at < size; at += 0xffffff {
		length := min(size-at, 0xffffff)
		copies = append(copies, 0xff, byte(at), byte(at>>8), byte(at>>16), byte(at>>24), byte(length), byte(length>>8), byte(length>>16))
	}
	delta := packObject{kind: 6, content: copies}
	objects := []packObject{{kind: 1, content: make([]byte, size)}}
	for range n {
		objects = append(objects, delta)
	}
	sizeOf := func(o packObject) int { return len(packOf(o)) - len(packOf()) }
	for i, distance := 1, sizeOf(objects[0]); i <= n; i++ {
		base := []byte{byte(distance & 0x7f)}
		for rest := distance >> 7; rest > 0; rest >>= 7 {
			rest--
			base = append([]byte{byte(rest&0x7f) | 0x80}, base...)
		}
		objects[i].base = base
		distance = sizeOf(objects[min(i, 2)])
	}
	return packOf(objects...)
}

// Guarantee: the work for a pack is bounded, even if each of its objects is a delta on the previous object and too
// large to be kept for the next.
func TestChainOfLargeDeltas(t *testing.T) {
	s := answers(t, capabilities("fetch=filter"), refs(reads(sent(chainOf(17<<20, 60)))))
	c := client(t, repository.Config{Roots: s.roots})
	repository.SetMaxBuilt(c, 100<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := read(t, c, repository.Source{URL: s.URL + "/x.git"})
	runtime.ReadMemStats(&after)
	wantKind(t, err, repository.TooLarge, "too large together")
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 500<<20 {
		t.Errorf("%d MiB were allocated, want at most 500: all of them are 1,020", grown>>20)
	}
}

// Guarantee: a pack of more than one object takes a slot, even from a server that claims to send single objects.
// Meanwhile, single objects can be read without a slot.
func TestHeavyPackOfAFilteringServer(t *testing.T) {
	one := packObject{kind: 1, content: []byte("x")}
	for name, c := range map[string]struct {
		pack  []byte
		waits bool
	}{
		"an object": {packOf(one), false},
		"a delta":   {chainOf(1000, 1), true},
		"many":      {packOf(slices.Repeat([]packObject{one}, 17)...), true},
		"large":     {packOf(one, packObject{kind: 3, content: make([]byte, 65<<20)}), true},
	} {
		s := answers(t, capabilities("fetch=filter"), refs(reads(sent(c.pack))))
		client := client(t, repository.Config{Roots: s.roots})
		repository.TakeSlots(client)
		source := repository.Source{URL: s.URL + "/x.git", Branch: "main", Path: "a"}
		commit, _, err := client.Head(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if c.waits {
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		}
		_, err = client.Read(ctx, source, commit)
		if waited := ctx.Err() != nil; waited != c.waits || err == nil {
			t.Errorf("%s: waited: %v, error %v; want an error, and to wait: %v", name, waited, err, c.waits)
		}
		cancel()
	}
}

// Guarantee: the address is checked when connecting, also after a redirect. A redirect is followed
// over https alone and five times at most, and a credential does not go to another host or port.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var sawSecret []bool
	other := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		sawSecret = append(sawSecret, password != "")
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(capabilities()))
			return
		}
		_, _ = w.Write([]byte(pkt(someCommit+" refs/heads/main\n") + "0000"))
	})
	to := ""
	s := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		at := to
		if at == "loop" {
			at = r.URL.Path + "x?service=git-upload-pack"
		}
		http.Redirect(w, r, at, http.StatusFound)
	})
	s.roots.AddCert(other.Certificate())
	c := client(t, repository.Config{Roots: s.roots})
	src := repository.Source{URL: s.URL + "/x.git", Credential: repository.Credential{Token: "s3cret"}}
	to = other.URL + "/y.git/info/refs?service=git-upload-pack"
	for range 2 {
		if commit, err := head(t, c, src); err != nil || commit != someCommit {
			t.Fatalf("got %q, %v", commit, err)
		}
	}
	if len(sawSecret) != 3 || sawSecret[0] || sawSecret[1] || sawSecret[2] {
		t.Errorf("the other server saw the credential: %v, want three requests without it", sawSecret)
	}
	for at, kind := range map[string]repository.Kind{
		"loop": repository.Unreachable, strings.Replace(to, "https", "http", 1): repository.Refused, other.URL + "/elsewhere": repository.Malformed,
		"file:///etc/passwd": repository.Refused,
	} {
		to = at
		_, err := head(t, client(t, repository.Config{Roots: s.roots}), src)
		wantKind(t, err, kind, "")
	}
	src.Public = true
	_, err := head(t, c, src)
	wantKind(t, err, repository.Refused, "repositories of this account must have public addresses")
	for _, url := range []string{"https://169.254.169.254/x", "ssh://git@[::ffff:169.254.169.254]/x", "https://[fe80::1]/x"} {
		_, err := head(t, c, repository.Source{URL: url, Credential: repository.Credential{SSHKey: sshKey(t, url)}})
		wantKind(t, err, repository.Refused, "")
	}
}

// Guarantee: an account whose repositories must have public addresses is not told what kind of address was refused, which
// would show it where a name leads in a network that it cannot reach.
func TestRefusedAddressesAreNotToldApart(t *testing.T) {
	c := client(t, repository.Config{})
	for _, addr := range []string{"127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "[::1]", "[fd00:ec2::254]", "[fe80::1]"} {
		for _, url := range []string{"https://" + addr + "/x", "ssh://git@" + addr + "/x"} {
			_, err := head(t, c, repository.Source{URL: url, Public: true, Credential: repository.Credential{SSHKey: sshKey(t, url)}})
			wantKind(t, err, repository.Refused, "")
			if want := "the server's address is not allowed: repositories of this account must have public addresses"; err == nil || err.Error() != want {
				t.Errorf("%s: got the error %v, want %q", url, err, want)
			}
		}
	}
}

func sshKey(t *testing.T, url string) string {
	if !strings.HasPrefix(url, "ssh:") {
		return ""
	}
	key, _ := newKey(t)
	return key
}

// Guarantee: a call ends when its caller gives up, and with the caller's error.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	arrived := make(chan bool, 1)
	s := hostile(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-arrived; cancel() }()
	_, _, err := client(t, repository.Config{Roots: s.roots}).Head(ctx, source(repository.Source{URL: s.URL + "/x.git"}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the caller's error", err)
	}
}

// Guarantee: a call to a server that only sends a byte now and then ends after 30 s.
func TestSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := repository.ReadSlowly(t.Context(), func() { <-time.After(5 * time.Second) })
		wantKind(t, err, repository.TooSlow, "less than 16 KiB in 30 s")
		if took := time.Since(start); took > 40*time.Second {
			t.Errorf("it took %s, want about 30 s", took)
		}
	})
}

// Guarantee: a server may prepare a pack for 2 minutes, whether it sends signs of life meanwhile or
// not; from the first byte of the pack on it must keep the pace.
func TestServerThatPreparesAPack(t *testing.T) {
	alive := pkt("\x01") // as Git sends it every few seconds
	whole := sent(packOf())
	head, pack := whole[:len(pkt("packfile\n"))], whole[len(pkt("packfile\n")):]
	for _, c := range []struct {
		name  string
		every time.Duration
		parts []string
		kind  repository.Kind
		text  string
	}{
		{"110 s with signs of life", 10 * time.Second, append(append([]string{head}, slices.Repeat([]string{alive}, 9)...), pack), repository.Malformed, "did not send commit"},
		{"130 s with signs of life", 10 * time.Second, append(append([]string{head}, slices.Repeat([]string{alive}, 13)...), pack), repository.TooSlow, "2 minutes"},
		{"100 s of silence", 100 * time.Second, []string{whole}, repository.Malformed, "did not send commit"},
		{"a pack that comes slowly", 20 * time.Second, []string{head, pkt("\x01P"), pkt("\x01A"), pkt("\x01C"), pkt("\x01K"), pack}, repository.TooSlow, "less than 16 KiB in 30 s"},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			wantKind(t, repository.ReadPrepared(t.Context(), dir, func() { <-time.After(c.every) }, c.parts...), c.kind, c.text)
		})
	}
}
