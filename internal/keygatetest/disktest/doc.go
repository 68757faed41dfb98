// Package disktest makes the disk full for a test, on Linux.
package disktest
