package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxBinary is the maximum size of a helper.
const maxBinary = 64 << 20

// Replace replaces target with the program from r if digestFile contains its sha256.
// Only root may be able to write that file, because it decides which helper runs.
func Replace(r io.Reader, target, digestFile string) error {
	want, err := readDigest(digestFile)
	if err != nil {
		return err
	}
	program, err := io.ReadAll(io.LimitReader(r, maxBinary+1))
	if err != nil {
		return err
	}
	if len(program) > maxBinary {
		return refuse("the new program is larger than %d bytes", maxBinary)
	}
	sum := sha256.Sum256(program)
	if have := hex.EncodeToString(sum[:]); have != want {
		return refuse("the new program has sha256 %s, want %s", have, want)
	}
	p, err := open(target)
	if err != nil {
		return err
	}
	defer p.close()
	return p.replace(program, 0o755, os.Geteuid(), os.Getegid())
}

// readDigest reads a sha256 from a file that only root can write.
func readDigest(name string) (string, error) {
	p, err := open(name)
	if err != nil {
		return "", err
	}
	defer p.close()
	f, st, err := p.openFile()
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return "", refuse("%s has to belong to root and be writable by root only", plain(name))
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", ioFault(name, err)
	}
	word := strings.Fields(string(b)) // as sha256sum prints it
	if len(word) == 0 || len(word[0]) != hex.EncodedLen(sha256.Size) {
		return "", fmt.Errorf("%s does not contain a sha256", plain(name))
	}
	return strings.ToLower(word[0]), nil
}
