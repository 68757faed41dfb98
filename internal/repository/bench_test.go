package repository_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/repository"
)

// BenchmarkPoll asks for the commit of a branch that has not changed: of a directory, and over
// https, of a repository with 10,000 other branches. For https the CPU time includes the client and a
// server in the same process that responds from memory; for ssh, it is the client's alone, with a
// connection for each poll.
func BenchmarkPoll(b *testing.B) {
	root := b.TempDir()
	r := newRepo(b, filepath.Join(root, "r"))
	r.write("api/openapi.yaml", "x")
	commit := r.commit("x")
	s := answers(b, capabilities(), reads(pkt(commit+" refs/heads/main\n")+"0000"))
	sshd := serveSSH(b, "AcceptEnv GIT_PROTOCOL")
	for _, c := range []struct {
		name string
		url  string
	}{{"https", s.URL + "/x.git"}, {"file", "file://" + r.dir}, {"ssh", "ssh://" + sshd.user + "@" + sshd.addr + r.dir}} {
		b.Run(c.name, func(b *testing.B) {
			client := client(b, repository.Config{AllowFile: root, Roots: s.roots})
			src := repository.Source{URL: c.url}
			if c.name == "ssh" {
				src.Credential.SSHKey = sshd.key
			}
			if _, err := head(b, client, src); err != nil {
				b.Fatal(err)
			}
			before := proctest.CPUTime(b)
			for b.Loop() {
				if _, err := head(b, client, src); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N)/1e6, "CPU-ms/poll")
		})
	}
}

// BenchmarkRead reads a file of a commit with 5,000 others, from a server that does not filter.
func BenchmarkRead(b *testing.B) {
	root := b.TempDir()
	r := newRepo(b, filepath.Join(root, "r"))
	for i := range 5000 {
		r.write(fmt.Sprintf("d%d/f%d.txt", i%50, i), fmt.Sprint("file ", i))
	}
	r.write("api/openapi.yaml", "x")
	r.commit("x")
	r.git("gc", "-q")
	s := serveGit(b, root, "")
	c := client(b, repository.Config{Roots: s.roots})
	for b.Loop() {
		if _, err := read(b, c, repository.Source{URL: s.URL + "/r/.git"}); err != nil {
			b.Fatal(err)
		}
	}
}
