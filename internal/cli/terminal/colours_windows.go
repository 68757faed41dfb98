package terminal

import "golang.org/x/sys/windows"

// enableColours makes a console understand ANSI codes and reports whether it does. Consoles
// before Windows 10 cannot.
func enableColours(fd int) bool {
	console := windows.Handle(fd)
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
