// Package repository reads one file of one branch of a Git repository, over https, ssh or from a
// directory of this machine, and sets the status of a commit (contract, section 5, Repository sync).
//
// Neither the server of a repository nor its content is trusted. The client speaks Git's
// protocol itself, asks for nothing but the newest commit of the branch, and reads what comes
// with a bound on its size and its time:
//
//	Head    the commit of the branch: one small request, ls-refs of protocol version 2
//	Read    the file: with a server that filters, the objects on the way to it, one by one;
//	        with any other, the whole tree of the commit as one pack, kept on disk and removed
//
// Every object that is used is checked against the identifier by which it was asked for.
// go-git reads the parts of a pack, and directories of this machine; none of its transports is
// used, and neither Git's settings nor its programs on this machine are.
package repository
