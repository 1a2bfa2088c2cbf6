package lab

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// DefaultImages is the directory in which images are kept.
	DefaultImages = "/var/cache/berth-lab"
	// MirrorVariable is the environment variable with the Debian mirror for images. By
	// default it is the one of the machine's apt, or deb.debian.org.
	MirrorVariable = "BERTH_DEBIAN_MIRROR"
)

// Suites returns the Debian suites that an image can have.
func Suites() []string { return []string{"bookworm", "trixie", "forky"} }

// hostPackages are the packages that every lab host needs.
func hostPackages() []string {
	return []string{"iproute2", "mount", "openssh-server", "procps", "sudo"}
}

// Image is a Debian system, unpacked or as a disk of machines. Hosts of any lab share it;
// none changes it.
type Image struct {
	Suite    string            `json:"suite"`
	Recipe   string            `json:"recipe"` // digest of the suite's packages and their options
	Mirror   string            `json:"mirror"`
	Built    time.Time         `json:"built"`
	Packages map[string]string `json:"packages"` // versions by name

	dir string
}

func (i Image) root() string { return filepath.Join(i.dir, "root") }

// BuildImage returns the image of a suite with the packages of a host and the given ones.
// It builds the image if it is not in the directory, which takes half a minute to three.
// Several processes may call it at once: one builds, the others wait. It needs root,
// mmdebstrap and a Debian mirror.
func BuildImage(ctx context.Context, images, suite string, packages []string, log *slog.Logger) (Image, error) {
	i, err := buildImage(ctx, images, suite, recipe{packages: packages}, log)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", suite, err)
	}
	return i, nil
}

// recipe describes the content of an image of a suite.
type recipe struct {
	packages []string // besides hostPackages
	hooks    []string // arguments of mmdebstrap that add hooks
	// disk, if set, makes a disk of the root directory, which is removed then.
	disk func(ctx context.Context, dir string) error
}

func buildImage(ctx context.Context, images, suite string, r recipe, log *slog.Logger) (Image, error) {
	if !slices.Contains(Suites(), suite) {
		return Image{}, fmt.Errorf("unknown suite; want one of %s", strings.Join(Suites(), ", "))
	}
	if err := checkDir(images); err != nil {
		return Image{}, err
	}
	r.packages = slices.Concat(hostPackages(), r.packages)
	slices.Sort(r.packages)
	r.packages = slices.Compact(r.packages)
	args := append([]string{
		"--variant=apt", "--format=directory", "--include=" + strings.Join(r.packages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
	}, r.hooks...)
	sum := sha256.Sum256([]byte(strings.Join(args, "\n")))
	i := Image{Suite: suite, Recipe: hex.EncodeToString(sum[:])[:12]}
	i.dir = filepath.Join(images, suite+"-"+i.Recipe)
	if err := i.read(); !errors.Is(err, os.ErrNotExist) {
		return i, err
	}
	if err := os.MkdirAll(images, 0o755); err != nil {
		return i, err
	}
	lock, err := lockFile(ctx, filepath.Join(images, suite+".lock"), log)
	if err != nil {
		return i, err
	}
	defer lock.Close()
	if err := i.read(); !errors.Is(err, os.ErrNotExist) {
		return i, err // the process before this one built it
	}
	return i, i.build(ctx, lock, r, args, log)
}

// build builds the image beside its directory and renames the result, so that an
// incomplete image is never used. Under the lock, existing files are leftovers of a process
// that was killed.
func (i *Image) build(ctx context.Context, lock *os.File, r recipe, args []string, log *slog.Logger) (err error) {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return errors.New("mmdebstrap is missing; run deploy/prepare as root to install it")
	}
	work := i.dir + ".building"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	configuration := filepath.Join(work, "apt.conf")
	if err := os.WriteFile(configuration, acquireConfiguration(ctx), 0o644); err != nil {
		return err
	}
	i.Mirror, i.Built = mirror(ctx), time.Now().UTC().Truncate(time.Second)
	if log != nil {
		log.Info("building an image", "suite", i.Suite, "mirror", i.Mirror, "dir", i.dir)
	}
	root := filepath.Join(work, "root")
	cmd := exec.CommandContext(ctx, "mmdebstrap", append(args, "--aptopt="+configuration, i.Suite, root, i.Mirror)...)
	// It keeps the lock if this process is killed, and its cleanup removes its mounts.
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s; %s names another mirror", err, last(out), MirrorVariable)
	}
	if i.Packages, err = installed(ctx, root, r.packages); err != nil {
		return err
	}
	if r.disk != nil {
		if err := r.disk(ctx, work); err != nil {
			return err
		}
		if err := os.RemoveAll(root); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "image.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	syscall.Sync() // before the rename, so that a power loss leaves no incomplete image
	return os.Rename(work, i.dir)
}

// read reads the record of a complete image; os.ErrNotExist without one.
func (i *Image) read() error {
	data, err := os.ReadFile(filepath.Join(i.dir, "image.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, i); err != nil {
		return fmt.Errorf("%s: %w; remove that directory", i.dir, err)
	}
	return nil
}

// lockFile returns a locked file. Closing it releases the lock.
func lockFile(ctx context.Context, path string, log *slog.Logger) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if !waiting && log != nil {
			log.Info("waiting for another process that builds the image", "lock", path)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// mirror returns the Debian mirror of the machine's apt, or deb.debian.org.
func mirror(ctx context.Context) string {
	if m := os.Getenv(MirrorVariable); m != "" {
		return m
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian",
		"Label: Debian").Output()
	if first, _, _ := strings.Cut(string(out), "\n"); err == nil && first != "" {
		return first
	}
	return "http://deb.debian.org/debian"
}

// acquireConfiguration returns the lines of the machine's apt configuration (apt.conf(5))
// that say how it reaches a mirror: proxies, retries, checks of dates.
func acquireConfiguration(ctx context.Context) []byte {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output()
	if err != nil {
		return nil // apt's defaults
	}
	var keep strings.Builder
	for line := range strings.Lines(string(out)) {
		for _, key := range []string{"http", "https", "Retries", "Check-"} {
			if strings.HasPrefix(line, "Acquire::"+key) {
				keep.WriteString(line)
			}
		}
	}
	return []byte(keep.String())
}

// installed returns the versions of the image's packages.
func installed(ctx context.Context, root string, packages []string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W", "-f",
		`${Package} ${Version}\n`).Output()
	if err != nil {
		return nil, fmt.Errorf("read its packages: %w", err)
	}
	versions := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		if name, version, ok := strings.Cut(lines.Text(), " "); ok {
			versions[name] = version
		}
	}
	for _, p := range packages {
		if versions[p] == "" {
			return nil, fmt.Errorf("package %s was not installed", p)
		}
	}
	return versions, nil
}

// last returns the last lines of the output of a program.
func last(out []byte) string {
	return strings.ReplaceAll(strings.TrimSpace(string(out[max(0, len(out)-1000):])), "\n", "; ")
}
