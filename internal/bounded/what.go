package bounded

import (
	"bytes"
	"fmt"
)

// Pointer is how the text begins that Git has in place of a file of LFS.
const Pointer = "version https://git-lfs"

// headBytes is how much of a file Explain looks at.
const headBytes = 512

// Explain adds to the error of a reader what the file is, and how to get the right one. head is how the file begins, of at
// least 512 bytes if it has so many. It returns the error as it is if it does not know.
func Explain(err error, head []byte) error {
	head = head[:min(len(head), headBytes)]
	text := bytes.ToLower(bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))))
	what := ""
	for begin, is := range map[string]string{
		Pointer:          "this is a Git LFS pointer in place of the file: run git lfs pull in its folder",
		"<!doctype html": webPage,
		"<html":          webPage,
		"<?xml":          webPage,
	} {
		if bytes.HasPrefix(text, []byte(begin)) {
			what = is
		}
	}
	switch {
	case len(text) == 0 && len(head) < headBytes:
		what = "the file is empty: get it again"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		what = "the file is a zip archive, as torch.save, numpy and Excel write them: unpack it, or save it in another form"
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		what = "the file is compressed: decompress it with gunzip"
	}
	if err == nil || what == "" {
		return err
	}
	return fmt.Errorf("%s (%w)", what, err)
}

const webPage = "this is a web page, an answer of a server in place of the file: get the file itself, with a login if it needs one"
