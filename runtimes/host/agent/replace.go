package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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
	p, err := open(target)
	if err != nil {
		return err
	}
	defer p.close()
	tmp := temporaryName(p.name)
	fd, err := openat(p.dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o700)
	if err != nil {
		return ioFault(target, err)
	}
	f := os.NewFile(uintptr(fd), tmp)
	err = fill(f, r, want)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = unix.Renameat(p.dir, tmp, p.dir, p.name)
	}
	if err != nil {
		_ = unix.Unlinkat(p.dir, tmp, 0)
		return err
	}
	return p.sync()
}

func fill(f *os.File, r io.Reader, want string) error {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, maxBinary+1))
	switch {
	case err != nil:
		return err
	case n > maxBinary:
		return refuse("the new program is larger than %d bytes", maxBinary)
	}
	if have := hex.EncodeToString(h.Sum(nil)); have != want {
		return refuse("the new program has sha256 %s, want %s", have, want)
	}
	if err := f.Chmod(0o755); err != nil {
		return err
	}
	return f.Sync()
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
