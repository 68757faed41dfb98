// Package ratelimit holds the rates that users write, and the arithmetic that
// decides by them (specification, Limits; contract, 4.3).
package ratelimit
