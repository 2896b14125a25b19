package live

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// every is how often clients get news.
	every = 500 * time.Millisecond
	// maxConns limits open connections; maxViewers limits those among them that get news.
	maxConns, maxViewers = 64, 16
	// patience is how long a client may take to send a request, and to read an answer.
	patience = 5 * time.Second
	// lastWords is how long the clients may take to read how the job ended.
	lastWords = 2 * time.Second
)

//go:embed page.html page.css page.js
var files embed.FS

// types are the files of the page.
var types = map[string]string{"page.html": "text/html; charset=utf-8", "page.css": "text/css; charset=utf-8",
	"page.js": "text/javascript; charset=utf-8"}

// Server shows a job. It is a launch.Watcher.
type Server struct {
	*state
	token string
	names []string // names of this host that a request may use; addresses are allowed, too
	l     net.Listener
	http  *http.Server
	over  chan struct{} // closed when the job is over

	viewers chan struct{} // one token for each
	cache   struct {
		sync.Mutex
		text    []byte
		version int
		at      time.Time
	}
}

// Address completes ADDR of -serve, which is a port or host:port. Without a host it is the loopback address.
func Address(addr string) (string, error) {
	full := addr
	if _, err := strconv.Atoi(addr); err == nil {
		full = ":" + addr
	}
	host, port, err := net.SplitHostPort(full)
	n, wrong := strconv.Atoi(port)
	if err != nil || wrong != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q is no port and no host:port", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// Listen starts to serve at an address of Address. The page shows the name of program.
func Listen(addr, program string) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve at %s: %w", addr, reason(err))
	}
	host, _, _ := net.SplitHostPort(addr)
	return newServer(l, host, program), nil
}

// newServer serves on l. Requests may use the name host.
func newServer(l net.Listener, host, program string) *Server {
	self, _ := os.Hostname() // on an error only addresses work
	s := &Server{state: newState(program), token: rand.Text(), names: []string{"localhost", host, self},
		l: &limited{Listener: l, free: make(chan struct{}, maxConns)}, over: make(chan struct{}), viewers: make(chan struct{}, maxViewers)}
	s.http = &http.Server{Handler: s, ReadTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() { _ = s.http.Serve(s.l) }() // returns after Close
	return s
}

// reason returns the cause in an error, without the address.
func reason(err error) error {
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		return e.Err
	}
	return err
}

// URL returns the address of the page, with its token. Everyone who knows it can see the page.
func (s *Server) URL() string {
	addr := s.l.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = s.names[len(s.names)-1]
	}
	return fmt.Sprintf("http://%s/%s/", net.JoinHostPort(host, strconv.Itoa(addr.Port)), s.token)
}

// Close tells the clients how the job ended, and stops.
func (s *Server) Close(result error) {
	s.finish(result)
	close(s.over)
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if s.http.Shutdown(ctx) != nil { // a client does not read
		_ = s.http.Close()
	}
}

// ServeHTTP answers only requests that have the token, and that name this host by an address or one of its names. A page of another site
// cannot do so, even if its name resolves to this host (DNS rebinding).
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Some writers have no deadline; those of http.Server do.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	token, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 || !s.known(r.Host) {
		http.Error(w, "This is the page of a job of ringo run. Open the address that ringo printed.", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	switch what {
	case "state":
		s.serveState(w)
	case "events":
		s.serveEvents(w, r)
	case "metrics":
		s.servePrometheus(w)
	case "debug/vars":
		s.serveVars(w)
	case "":
		serveFile(w, "page.html")
	default:
		serveFile(w, what)
	}
}

// known reports whether a Host header means this host, by an address or one of its names.
func (s *Server) known(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	for _, name := range s.names {
		if name != "" && strings.EqualFold(host, name) {
			return true
		}
	}
	return false
}

func serveFile(w http.ResponseWriter, name string) {
	text, err := files.ReadFile(name)
	if err != nil {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", types[name])
	_, _ = w.Write(text)
}

// latest returns the state of the job as JSON, at most `every` old, and its version number.
func (s *Server) latest() ([]byte, int, error) {
	c := &s.cache
	c.Lock()
	defer c.Unlock()
	select {
	case <-s.over:
	default:
		if time.Since(c.at) < every {
			return c.text, c.version, nil
		}
	}
	text, version, err := s.encode()
	if err == nil {
		c.text, c.version, c.at = text, version, time.Now()
	}
	return text, version, err
}

func (s *Server) serveState(w http.ResponseWriter) {
	text, _, err := s.latest()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// serveEvents sends a client the news of the job, and the lines of the rank that it asks for, until the client leaves, the job ends, or
// the client is too slow.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case s.viewers <- struct{}{}:
		defer func() { <-s.viewers }()
	default:
		http.Error(w, fmt.Sprintf("%d others look already", maxViewers), http.StatusServiceUnavailable)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the request was read: that of ReadTimeout would end the answer
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(every)
	defer tick.Stop()
	rank, _ := strconv.Atoi(r.URL.Query().Get("rank")) // 0 if it is not a number
	e := events{w: w, version: -1}
	for over := false; e.send(s, rank) == nil && !over; {
		select {
		case <-tick.C:
		case <-s.over:
			over = true
		case <-r.Context().Done():
			return
		}
	}
}

// events is what a client has got so far.
type events struct {
	w       http.ResponseWriter
	version int
	lines   []byte
}

// send sends what is new.
func (e *events) send(s *Server, rank int) error {
	text, version, err := s.latest()
	if err != nil || version == e.version {
		return err
	}
	lines, err := json.Marshal(s.tail(rank))
	if err != nil {
		return err
	}
	control := http.NewResponseController(e.w)
	_ = control.SetWriteDeadline(time.Now().Add(patience)) // as in ServeHTTP
	if !bytes.Equal(lines, e.lines) {
		fmt.Fprintf(e.w, "event: lines\ndata: %s\n\n", lines) // Flush returns the error
	}
	fmt.Fprintf(e.w, "event: state\ndata: %s\n\n", text)
	e.version, e.lines = version, lines
	return control.Flush()
}

// limited closes new connections when there are too many.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: conn, end: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			conn.Close()
		}
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	end func()
}

func (c *counted) Close() error {
	c.end()
	return c.Conn.Close()
}
