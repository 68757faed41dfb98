import { Link } from '@tanstack/react-router';
import { Button, buttonClass, Empty, Failure, Page } from './basic';

// Missing is the page for an address that does not exist.
export function Missing() {
  return (
    <Page title="Page not found">
      <Empty
        icon="search"
        title="There is no such page"
        action={
          <Link to="/" className={buttonClass('primary')}>
            Go to the overview
          </Link>
        }>
        The link may be old, or have a typing error.
      </Empty>
    </Page>
  );
}

// PageError is shown in place of a screen that failed.
export function PageError({ error, reset }: { error: unknown; reset?: () => void }) {
  return (
    <Page title="This page failed">
      <Failure error={error} />
      <div>
        <Button
          onClick={() => {
            reset?.();
            location.reload();
          }}>
          Load the page again
        </Button>
      </div>
    </Page>
  );
}
