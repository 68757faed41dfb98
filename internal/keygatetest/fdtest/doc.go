// Package fdtest counts and limits the file descriptors of a process, on Linux.
package fdtest
