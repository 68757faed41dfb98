import { Page } from '../../ui/basic';

export default function Screen() {
  return <Page title="event"><></></Page>;
}
