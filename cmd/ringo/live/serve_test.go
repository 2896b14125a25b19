package live

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// longest is how long tests wait for what must happen; tick is how often they check.
const longest, tick = 20 * time.Second, 5 * time.Millisecond

func serve(t *testing.T) *Server {
	s, err := Listen("127.0.0.1:0", "train")
	require.NoError(t, err)
	return s
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{"4242": "127.0.0.1:4242", "0": "127.0.0.1:0", ":80": "127.0.0.1:80", "10.0.0.5:1": "10.0.0.5:1",
		"[::1]:5": "[::1]:5", "0.0.0.0:7": "0.0.0.0:7", "host0:7": "host0:7"} {
		got, err := Address(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got)
	}
	for _, in := range []string{"", "localhost", "x:y", "70000", "-1", "::1:5:", "127.0.0.1:"} {
		_, err := Address(in)
		assert.ErrorContains(t, err, fmt.Sprintf("%q is no port and no host:port", in))
	}
}

func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = Listen(l.Addr().String(), "train")
	assert.ErrorContains(t, err, fmt.Sprintf("cannot serve at %v: ", l.Addr()))
}

// get returns an answer with its body.
func get(t *testing.T, url string, change func(r *http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer, string(text)
}

// Requests need the token, and a name or address of this host.
func TestWhoMayLook(t *testing.T) {
	s := serve(t)
	defer s.Close(nil)
	base := strings.TrimSuffix(s.URL(), s.token+"/")
	require.GreaterOrEqual(t, len(s.token), 26) // at least 128 bits
	assert.Regexp(t, `^http://127\.0\.0\.1:\d+/$`, base)
	other := serve(t)
	defer other.Close(nil)
	assert.NotEqual(t, s.token, other.token)

	for _, path := range []string{"", "/", "state", "page.js", "favicon.ico", other.token + "/", s.token[1:] + "/",
		strings.ToLower(s.token) + "/", "/" + s.token + "/", "?token=" + s.token} {
		answer, text := get(t, base+path, nil)
		assert.Equal(t, http.StatusForbidden, answer.StatusCode, path)
		assert.NotContains(t, text, "train", path)
	}
	for host, want := range map[string]int{"localhost:80": 200, "LOCALHOST": 200, "127.0.0.1": 200, "[::1]:443": 200, "[::1]": 200,
		"10.1.2.3:4": 200, "evil.example": 403, "evil.example:80": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403} {
		answer, _ := get(t, s.URL()+"state", func(r *http.Request) { r.Host = host })
		assert.Equal(t, want, answer.StatusCode, host)
	}
	answer, _ := get(t, s.URL()+"state", func(r *http.Request) { r.Method = http.MethodPost })
	assert.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
	for _, what := range []string{"serve.go", "state/", "../page.js", "page"} {
		answer, _ := get(t, s.URL()+what, nil)
		assert.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, answer.StatusCode, what)
	}
}

// The page needs nothing from other sites, and tells the browser to load nothing from them.
func TestPage(t *testing.T) {
	s := serve(t)
	defer s.Close(nil)
	for what, kind := range map[string]string{
		"": "text/html", "page.css": "text/css", "page.js": "text/javascript", "state": "application/json",
	} {
		answer, text := get(t, s.URL()+what, nil)
		assert.Equal(t, http.StatusOK, answer.StatusCode)
		assert.Contains(t, answer.Header.Get("Content-Type"), kind)
		assert.Contains(t, answer.Header.Get("Content-Security-Policy"),
			"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
		assert.Empty(t, answer.Header.Get("Access-Control-Allow-Origin"))
		assert.Equal(t, "no-referrer", answer.Header.Get("Referrer-Policy"))
		assert.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
		assert.NotEmpty(t, text)
		assert.NotRegexp(t, `(?i)(src|href)="(https?:)?//|@import|url\(|innerHTML|insertAdjacentHTML|document\.write|eval\(`, text, what)
	}
}

// next returns the data of the next event of a kind.
func next(t *testing.T, in *bufio.Reader, kind string) string {
	t.Helper()
	for {
		head, err := in.ReadString('\n')
		require.NoError(t, err)
		if head == "event: "+kind+"\n" {
			data, err := in.ReadString('\n')
			require.NoError(t, err)
			return strings.TrimPrefix(data, "data: ")
		}
	}
}

// openEvents opens a stream of events.
func openEvents(t *testing.T, s *Server, rank int) (*http.Response, *bufio.Reader) {
	t.Helper()
	answer, err := http.Get(fmt.Sprintf("%sevents?rank=%d", s.URL(), rank))
	require.NoError(t, err)
	return answer, bufio.NewReader(answer.Body)
}

func TestEvents(t *testing.T) {
	s := serve(t)
	answer, in := openEvents(t, s, 1)
	defer answer.Body.Close()
	assert.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	assert.Contains(t, next(t, in, "state"), `"state":"starting"`)
	s.Started(1, 2, 2)
	s.Printed(1, 0, []byte("of another rank\n"))
	s.Printed(1, 1, []byte("</script><b>\n"))
	assert.Equal(t, `["\u003c/script\u003e\u003cb\u003e"]`+"\n", next(t, in, "lines"))
	assert.Contains(t, next(t, in, "state"), `"state":"running"`)
	s.Close(errors.New("rank 1 failed: no\ncable"))
	last := next(t, in, "state")
	assert.Contains(t, last, `"state":"failed"`)
	assert.Contains(t, last, `"text":"rank 1 failed: no\ncable"`)
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(string(rest)))
	_, err = http.Get(s.URL())
	assert.Error(t, err)
}

// If there are too many viewers, new ones are refused. When one leaves, the next may come.
func TestManyViewers(t *testing.T) {
	s := serve(t)
	defer s.Close(nil)
	var all []*http.Response
	for range maxViewers {
		answer, in := openEvents(t, s, 0)
		next(t, in, "state")
		all = append(all, answer)
		defer answer.Body.Close()
	}
	answer, text := get(t, s.URL()+"events", nil)
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	assert.Equal(t, "16 others look already\n", text)
	all[3].Body.Close()
	require.Eventually(t, func() bool { return len(s.viewers) < maxViewers }, longest, tick)
	answer, in := openEvents(t, s, 0)
	defer answer.Body.Close()
	next(t, in, "state")
}

// Connections above the limit are closed at once, wherever they come from.
func TestManyConnections(t *testing.T) {
	s := serve(t)
	t.Cleanup(func() { s.Close(nil) }) // after the connections, which it would wait for
	dial := func() net.Conn {
		c, err := net.Dial("tcp", s.l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	var all []net.Conn
	for range maxConns {
		all = append(all, dial())
	}
	beyond := dial() // the last one: connections are accepted in order
	_, _ = fmt.Fprintf(beyond, "GET / HTTP/1.0\r\n\r\n")
	text, _ := io.ReadAll(beyond) // an error means that it was reset
	assert.Empty(t, string(text))
	all[0].Close()
	free := s.l.(*limited).free
	require.Eventually(t, func() bool { return len(free) < maxConns }, longest, tick)
	again := dial()
	_, err := fmt.Fprintf(again, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	text, err = io.ReadAll(again)
	require.NoError(t, err)
	assert.Contains(t, string(text), "403 Forbidden")
}

// pipes is a listener whose connections have no buffer: a write waits for its reader.
type pipes struct {
	in   chan net.Conn
	over chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.over)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// watch asks for events over a new connection.
func (p *pipes) watch(t *testing.T, s *Server) net.Conn {
	ours, theirs := net.Pipe()
	p.in <- theirs
	_, err := fmt.Fprintf(ours, "GET /%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", s.token)
	require.NoError(t, err)
	return ours
}

// A stranger who promises a request and does not send it holds a connection for a while only; who looks on stays.
func TestSlowStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		s := newServer(p, "127.0.0.1", "train")
		viewer := p.watch(t, s)
		in := bufio.NewReader(viewer)
		next(t, in, "state")
		for _, request := range []string{"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "GET / HTTP/1.1\r\nHos", ""} {
			ours, theirs := net.Pipe()
			p.in <- theirs
			go func() { _, _ = io.WriteString(ours, request) }()
			began := time.Now()
			_, err := io.ReadAll(ours)
			assert.NoError(t, err)
			assert.LessOrEqual(t, time.Since(began), 2*patience, request)
		}
		time.Sleep(3 * patience)
		s.Printed(1, 0, []byte("still there\n"))
		assert.Contains(t, next(t, in, "lines"), "still there")
		viewer.Close()
		s.Close(nil)
	})
}

// A client that does not read delays neither the ranks nor other clients, and is dropped after a while.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		s := newServer(p, "127.0.0.1", "train")
		slow := p.watch(t, s)
		quick := p.watch(t, s)
		in := bufio.NewReader(quick)
		next(t, in, "state")
		began := time.Now()
		for i := range 4 {
			s.Printed(1, 0, fmt.Appendln(nil, "round", i))
			assert.Contains(t, next(t, in, "lines"), fmt.Sprint("round ", i))
		}
		assert.LessOrEqual(t, time.Since(began), 5*every)
		assert.Len(t, s.viewers, 2)
		time.Sleep(patience)
		synctest.Wait()
		assert.Len(t, s.viewers, 1, "the slow one is gone")
		_, err := io.ReadAll(slow)
		assert.NoError(t, err)

		stuck := p.watch(t, s) // stuck when the job ends
		time.Sleep(every)
		began = time.Now()
		go s.Close(nil)
		for !strings.Contains(next(t, in, "state"), `"state":"ended"`) {
		}
		<-p.over
		time.Sleep(lastWords)
		synctest.Wait()
		_, err = io.ReadAll(stuck)
		assert.NoError(t, err)
		assert.LessOrEqual(t, time.Since(began), lastWords)
		quick.Close()
	})
}

// With any number of clients, the state is encoded at most twice a second.
func TestOneEncoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{state: newState("train"), over: make(chan struct{})}
		first, version, err := s.latest()
		require.NoError(t, err)
		s.Started(1, 2, 2)
		again, same, err := s.latest()
		require.NoError(t, err)
		assert.Same(t, &first[0], &again[0])
		assert.Equal(t, version, same)
		time.Sleep(every)
		_, later, err := s.latest()
		require.NoError(t, err)
		assert.Greater(t, later, version)
		s.finish(nil)
		close(s.over)
		last, _, err := s.latest()
		require.NoError(t, err)
		assert.Contains(t, string(last), `"state":"ended"`, "at once")
	})
}
