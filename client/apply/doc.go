// Package apply makes gateways what configuration files say, and writes the files of gateways.
//
//	set, err := apply.Read(apply.Source{}, "gateways/")
//	…
//	a := apply.New(apply.Config{Client: c, Prune: true})
//	differences, err := a.Compare(ctx, set)
//	for _, d := range differences {
//		if d.Action != apply.Keep {
//			err = a.Apply(ctx, d)
//		}
//	}
//
// Compare changes nothing. Apply refuses a gateway that was changed since Compare.
//
// # Errors
//
// An error about files is an *Errors, which has a *FileError for each of them. An error of the server is, or
// wraps, a *client.Error or a *client.UnreachableError. The texts of all errors are for people. None contains
// the value of an environment variable that a file refers to.
package apply
