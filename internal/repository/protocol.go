package repository

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// conn carries requests to git-upload-pack of one repository.
type conn interface {
	// advertised returns the server's first response: the capabilities of version 2, or the
	// references of an older version. It returns nil if the server is known to have version 2.
	advertised(ctx context.Context) (io.ReadCloser, error)
	// send sends a request and returns the response. prepares says that the response is a pack, which the
	// server prepares first.
	send(ctx context.Context, request []byte, prepares bool) (response, error)
	// isV2 notes that the server has version 2.
	isV2(c capabilities)
	// known returns what isV2 has noted for an earlier conn, and forget removes the note.
	known() (c capabilities, ok bool)
	forget()
	hostKey() string
	close()
}

// capabilities are the capabilities of a server with version 2 that matter here.
type capabilities struct {
	filter bool
}

// remote is a repository behind git-upload-pack.
type remote struct {
	conn
	client  *Client
	v2      bool
	assumed bool // v2 and caps come from an earlier conn
	caps    capabilities

	// For an older version: what its references say.
	old      bool
	oldHead  string // commit of the branch that head asked for
	oldNames map[string]bool

	pack *pack // the whole commit, if the server does not filter
}

func (c *Client) remote(conn conn) *remote { return &remote{conn: conn, client: c} }

func (r *remote) close() {
	if r.pack != nil {
		r.pack.close()
	}
	r.conn.close()
}

// greet reads what the server advertises, once. branch is a branch to look for in the references of
// an older version, "" for none.
func (r *remote) greet(ctx context.Context, branch string) error {
	if r.v2 || r.old && branch == "" {
		return nil
	}
	if caps, ok := r.known(); ok {
		r.v2, r.assumed, r.caps = true, true, caps
		return nil
	}
	body, err := r.advertised(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	p := newPktReader(r.references(body))
	kind, line, err := p.line()
	if err == nil && strings.HasPrefix(line, "# service=") { // https only
		if kind, _, err = p.next(); err == nil && kind != pktFlush {
			err = errPkt
		}
		if err == nil {
			kind, line, err = p.line()
		}
	}
	if err != nil {
		return noEOF(err)
	}
	if line == "version 2" {
		return r.readCapabilities(p)
	}
	return r.readReferences(p, kind, line, branch)
}

func (r *remote) readCapabilities(p *pktReader) error {
	for {
		kind, line, err := p.line()
		if err != nil {
			return noEOF(err)
		}
		if kind != pktData {
			r.v2 = true
			r.isV2(r.caps)
			return nil
		}
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "fetch":
			for feature := range strings.FieldsSeq(value) {
				r.caps.filter = r.caps.filter || feature == "filter"
			}
		case "object-format":
			if err := checkFormat(value); err != nil {
				return err
			}
		}
	}
}

func checkFormat(format string) error {
	if format != "sha1" {
		return problem(Unsupported, "the repository uses the object format %s: only sha1 is supported", printable(format, 20))
	}
	return nil
}

// readReferences reads the references of a server with an older version, up to the branch.
func (r *remote) readReferences(p *pktReader, kind pktKind, line, branch string) error {
	r.old, r.oldNames = true, map[string]bool{}
	ref, caps, _ := strings.Cut(line, "\x00")
	for capability := range strings.FieldsSeq(caps) {
		name, value, _ := strings.Cut(capability, "=")
		if r.oldNames[name] = true; name == "object-format" {
			if err := checkFormat(value); err != nil {
				return err
			}
		}
	}
	for kind == pktData {
		commit, name, found := strings.Cut(ref, " ")
		switch {
		case strings.HasPrefix(ref, "version "), strings.HasPrefix(ref, "shallow "):
		case !found || !isID(commit):
			return errPkt
		case name == "refs/heads/"+branch:
			r.oldHead = commit
			return nil
		}
		var err error
		if kind, ref, err = p.line(); err != nil {
			return noEOF(err)
		}
	}
	return nil
}

// head implements tree.
func (r *remote) head(ctx context.Context, branch string) (string, error) {
	commit, err := r.lsRefs(ctx, branch)
	if err != nil {
		return "", err
	}
	if commit == "" {
		return "", problem(NoBranch, "the repository has no branch %s: check its name, and that something was pushed to it", printable(branch, maxBranch))
	}
	return commit, nil
}

func (r *remote) lsRefs(ctx context.Context, branch string) (string, error) {
	if err := r.greet(ctx, branch); err != nil {
		return "", err
	}
	if r.old {
		return r.oldHead, nil
	}
	request := appendPkt(nil, "command=ls-refs\n")
	request = append(request, delimPkt...)
	request = appendPkt(request, "ref-prefix refs/heads/"+branch+"\n")
	request = append(request, flushPkt...)
	body, err := r.send(ctx, request, false)
	if err != nil && r.assumed {
		r.unlearn()
		return r.lsRefs(ctx, branch)
	}
	if err != nil {
		return "", err
	}
	defer body.Close()
	p := newPktReader(r.references(body))
	for {
		kind, line, err := p.line()
		if err != nil || kind != pktData {
			return "", noEOF(err)
		}
		commit, rest, _ := strings.Cut(line, " ")
		if name, _, _ := strings.Cut(rest, " "); name != "refs/heads/"+branch {
			continue
		}
		if !isID(commit) {
			return "", errPkt
		}
		return commit, nil
	}
}

// unlearn forgets what was assumed about the server, because the repository has moved, or the server
// has another version or other capabilities now.
func (r *remote) unlearn() {
	r.forget()
	r.v2, r.assumed, r.caps = false, false, capabilities{}
}

// object implements tree. If the server refuses a request that its assumed capabilities allow, it
// is asked once more for its capabilities.
func (r *remote) object(ctx context.Context, kind objectType, id, commit string) ([]byte, error) {
	content, err := r.tryObject(ctx, kind, id, commit)
	if err == nil || !r.assumed || r.pack != nil || ctx.Err() != nil || isSlow(err) {
		return content, err
	}
	var known *Error
	if errors.As(err, &known) && (known.Kind == TooLarge || known.Kind == Refused) {
		return nil, err
	}
	r.unlearn()
	return r.tryObject(ctx, kind, id, commit)
}

func (r *remote) tryObject(ctx context.Context, kind objectType, id, commit string) ([]byte, error) {
	if err := r.greet(ctx, ""); err != nil {
		return nil, err
	}
	if r.v2 && r.caps.filter {
		// The server sends a requested object whatever the filter is, but not the objects that belong to it.
		p, err := r.fetch(ctx, id, kind)
		if err != nil {
			return nil, err
		}
		defer p.close()
		return r.find(ctx, p, kind, id)
	}
	if r.pack == nil {
		p, err := r.fetch(ctx, commit, wholeCommit)
		if err != nil {
			return nil, err
		}
		r.pack = p
	}
	return r.find(ctx, r.pack, kind, id)
}

// find returns an object of a pack, by its identifier.
func (r *remote) find(ctx context.Context, p *pack, kind objectType, id string) ([]byte, error) {
	if p.heavy {
		release, err := r.client.slot(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	return p.object(ctx, kind, id)
}

// slot takes a slot for reading a pack that is heavy.
func (c *Client) slot(ctx context.Context) (release func(), err error) {
	select {
	case c.heavy <- struct{}{}:
		return func() { <-c.heavy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wholeCommit is the kind of a commit with all objects that belong to it, but without its history.
const wholeCommit = plumbing.AnyObject

// fetch fetches an object of a kind alone, or a wholeCommit.
func (r *remote) fetch(ctx context.Context, id string, kind objectType) (*pack, error) {
	var request []byte
	if r.v2 {
		request = appendPkt(request, "command=fetch\n")
		request = append(request, delimPkt...)
		request = appendPkt(request, "no-progress\n")
		request = appendPkt(request, "ofs-delta\n")
		if kind != wholeCommit {
			request = appendPkt(request, "filter tree:0\n")
		}
		if kind == plumbing.CommitObject || kind == wholeCommit {
			request = appendPkt(request, "deepen 1\n")
		}
		request = appendPkt(request, "want "+id+"\n")
		request = appendPkt(request, "done\n")
		request = append(request, flushPkt...)
	} else {
		caps := ""
		for _, name := range []string{"side-band-64k", "ofs-delta", "shallow", "no-progress"} {
			if r.oldNames[name] {
				caps += " " + name
			}
		}
		if !r.oldNames["shallow"] {
			return nil, problem(Unsupported, "the server cannot send a single commit: it must support shallow clones, as Git does since version 1.5")
		}
		request = appendPkt(request, "want "+id+caps+"\n")
		request = appendPkt(request, "deepen 1\n")
		request = append(request, flushPkt...)
		request = appendPkt(request, "done\n")
	}
	body, err := r.send(ctx, request, true)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	in, err := r.packIn(body)
	if err != nil {
		return nil, noEOF(err)
	}
	p, err := receivePack(r.client.cfg.Dir, r.client.maxObject, r.client.maxBuilt, &limited{r: &packReader{in, body}, left: r.client.maxPack, refusal: problem(TooLarge, "the commit is too large: the server sends more than the 256 MiB that are read")})
	if err != nil {
		return nil, err
	}
	if err := r.index(ctx, p); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// index indexes a pack. A pack of more than one object takes a slot, whatever was requested, because it may keep a
// processor busy for seconds.
func (r *remote) index(ctx context.Context, p *pack) error {
	release := func() {}
	defer func() { release() }()
	return p.index(ctx, func() error {
		free, err := r.client.slot(ctx)
		if err == nil {
			release = free
		}
		return err
	})
}

// packIn returns the pack in the response to fetch.
func (r *remote) packIn(body io.Reader) (io.Reader, error) {
	p := newPktReader(body)
	for range 100_000 { // lines before the pack
		kind, line, err := p.line()
		switch {
		case err != nil:
			return nil, err
		case r.v2 && line == "packfile":
			return &sideband{p: p}, nil
		case r.v2, kind == pktFlush, strings.HasPrefix(line, "shallow "), strings.HasPrefix(line, "unshallow "):
		case line != "NAK":
			return nil, errPkt
		case r.oldNames["side-band-64k"]:
			return &sideband{p: p}, nil
		default:
			return p.r, nil
		}
		if r.v2 && kind == pktFlush {
			return nil, errors.New("the response has no pack")
		}
	}
	return nil, errPkt
}

// references limits a list of references.
func (r *remote) references(body io.Reader) io.Reader {
	return &limited{r: body, left: r.client.maxReferences, refusal: problem(TooLarge, "the list of references is too large: the server sends more than the 32 MiB that are read")}
}

// limited fails when more than a number of bytes comes from r.
type limited struct {
	r       io.Reader
	left    int64
	refusal error
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		var one [1]byte
		if n, err := l.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, l.refusal
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// isID reports whether s is the identifier of an object.
func isID(s string) bool {
	return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == ""
}
