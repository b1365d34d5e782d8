//go:build !unix

package vfs

import "errors"

// FreeBytes implements FS. These systems cannot tell.
func (OS) FreeBytes(string) (uint64, error) { return 0, errors.ErrUnsupported }
